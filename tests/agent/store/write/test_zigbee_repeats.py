"""Equal data of one Zigbee device within two seconds: kept, and marked."""

from pathlib import Path

import pytest

from contract.event import Event
from tests.agent.store.stores import HandClock, make_store, stored_events, submit

DEVICE = "urn:dev:mac:00158d0001234567"
MARK = b'"possible_duplicate_of"'


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("seconds", "is_marked"), [(0, True), (2, True), (2.1, False)])
async def test_equal_data_within_two_seconds_is_kept_and_names_the_earlier(
    tmp_path: Path, seconds: float, is_marked: bool, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await submit(store, clock, Event(DEVICE, time=1, data={"action": "single"}), via="zigbee2mqtt")
        clock.pass_seconds(seconds)
        await submit(store, clock, Event(DEVICE, time=2, data={"action": "single"}), via="zigbee2mqtt")
        started, first, second = stored_events(store)
    assert MARK not in started.tail + first.tail
    assert (MARK in second.tail) is is_marked
    assert (first.fingerprint.hex().encode() in second.tail) is is_marked


async def test_other_data_another_device_and_other_ways_in_are_not_marked(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await submit(store, clock, Event(DEVICE, time=1, data={"action": "single"}), via="zigbee2mqtt")
        await submit(store, clock, Event(DEVICE, time=2, data={"action": "double"}), via="zigbee2mqtt")
        await submit(store, clock, Event(f"{DEVICE}8", time=3, data={"action": "single"}), via="zigbee2mqtt")
        await submit(store, clock, Event(DEVICE, time=4, data={"action": "single"}), via="coap")
        events = stored_events(store)
    assert [MARK in event.tail for event in events] == [False] * 5


async def test_an_equal_stamp_is_the_same_event(tmp_path: Path, clock: HandClock) -> None:
    event = Event(DEVICE, time=1, data={"action": "single"})
    async with make_store(tmp_path, clock) as store:
        assert (await submit(store, clock, event, via="zigbee2mqtt")).accepted == 1
        assert (await submit(store, clock, event, via="zigbee2mqtt")).duplicates == 1
