"""The stores of several lanes: a delivery is divided, answered as a whole, and recognised when it comes again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.clock import Clock
from agent.config.lanes import DEFAULT_LANE, Lane
from agent.config.settings import (
    ForwardSettings,
    GatewaySettings,
    IdentitySettings,
    KafkaSettings,
    Settings,
    StoreSettings,
)
from agent.status import read_status
from agent.store.counts import EventCounts
from agent.store.lanes.stores import LaneStores, lane_stores
from agent.store.port import Reject, StoredEvent
from agent.store.schema import database
from contract.event import Event
from tests.agent.store.stores import (
    GATEWAY,
    START,
    FaultyConnection,
    HandClock,
    accept,
    batch,
    candidate,
    open_faulty,
    stored_events,
)

ALARMS = Lane("alarms", 10, type="alarm")
DOORS = Lane("doors", 5, device="urn:door:*")
READING, OTHER = (Event("urn:a", id=number, data={"x": number}) for number in (1, 2))
ALARM = Event("urn:a", type="alarm", id=3, data={"x": 3})
DOOR = Event("urn:door:1", id=4, data={"x": 4})
NAMELESS = Event("urn:a", data={"x": 5})
NAMELESS_ALARM = Event("urn:a", type="alarm", data={"x": 6})
KEY = bytes(range(16))


@asynccontextmanager
async def opened(
    folder: Path, clock: HandClock, *lanes: Lane, **connects: database.Connect
) -> AsyncIterator[LaneStores]:
    """Open the stores of lanes; `connects` replaces how the store of a lane is opened."""
    settings = Settings(
        GatewaySettings(GATEWAY, folder), KafkaSettings("127.0.0.1:1"), forward=ForwardSettings(lanes=lanes)
    )
    stores = lane_stores(settings, clock)
    for lane, connect in connects.items():
        stores.by_lane[lane]._connect = connect
    async with stores:
        yield stores


def of_sensors(stores: LaneStores, lane: str) -> list[StoredEvent]:
    """Return the events of sensors in a lane, in order."""
    return [event for event in stored_events(stores.by_lane[lane]) if b'"via":"gateway"' not in event.tail]


def sizes(stores: LaneStores) -> dict[str, int]:
    return {lane: len(of_sensors(stores, lane)) for lane in stores.by_lane}


async def test_an_event_goes_to_the_first_lane_that_matches_its_device_and_its_type(
    tmp_path: Path, clock: HandClock
) -> None:
    both = Lane("door-alarms", 20, device="urn:door:*", type="alarm")
    async with opened(tmp_path, clock, both, ALARMS, DOORS) as stores:
        await accept(stores.intake, clock, READING)
        await accept(stores.intake, clock, ALARM)
        await accept(stores.intake, clock, DOOR)
        await accept(stores.intake, clock, replace(DOOR, type="alarm"))
        assert sizes(stores) == {DEFAULT_LANE: 1, "door-alarms": 1, "alarms": 1, "doors": 1}
        assert stores.counts().new == sum(counts.new for counts in stores.lane_counts().values()) == 8


async def test_without_lanes_there_is_one_store_and_nothing_before_it(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock) as stores:
        assert stores.intake is stores.by_lane[DEFAULT_LANE]
        assert stores.lane_counts() == {}
    assert not (tmp_path / "lanes").exists()


async def test_each_lane_has_labels_without_holes_and_names_itself(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, ALARMS) as stores:
        for number in range(10):
            await accept(stores.intake, clock, replace(READING, id=100 + number), replace(ALARM, id=200 + number))
        found = {lane: stored_events(store) for lane, store in stores.by_lane.items()}
    for events in found.values():
        assert [event.label.sequence for event in events] == list(range(1, 12))
        assert len({event.label.epoch for event in events}) == 1
    assert found[DEFAULT_LANE][0].label.epoch != found["alarms"][0].label.epoch
    assert b'"lane":"alarms"' in found["alarms"][0].tail
    assert b'"lane"' not in found[DEFAULT_LANE][0].tail


async def test_a_divided_delivery_has_one_outcome_in_the_order_of_its_events(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, ALARMS, DOORS) as stores:
        await accept(stores.intake, clock, OTHER, DOOR)
        outcome = await accept(stores.intake, clock, READING, ALARM, OTHER, DOOR, replace(ALARM, id=30))
        assert (outcome.accepted, outcome.duplicates, outcome.refusal) == (3, 2, "")
        assert outcome.new == (True, True, False, False, True)
        events = (READING, ALARM, OTHER, DOOR, replace(ALARM, id=30))
        assert outcome.fingerprints == tuple(candidate(clock, event).fingerprint for event in events)
        again = await accept(stores.intake, clock, *events)
        assert (again.accepted, again.duplicates, again.fingerprints) == (0, 5, outcome.fingerprints)
        assert sizes(stores) == {DEFAULT_LANE: 2, "alarms": 2, "doors": 1}


@pytest.mark.guarantee(1)
async def test_a_delivery_of_which_one_part_is_refused_is_refused_and_its_resend_stores_the_rest(
    tmp_path: Path, clock: HandClock, faulty: type[FaultyConnection]
) -> None:
    async with opened(tmp_path, clock, ALARMS, alarms=open_faulty(faulty)) as stores:
        await accept(stores.intake, clock, READING, ALARM)
        faulty.fault = "COMMIT"
        refused = await accept(stores.intake, clock, OTHER, replace(ALARM, id=30), NAMELESS, NAMELESS_ALARM, key=KEY)
        assert refused.refusal.startswith("the store cannot write")
        assert (refused.accepted, refused.retry_seconds > 0) == (0, True)
        assert "cannot write" in stores.trouble()
        faulty.fault = ""
        again = await accept(stores.intake, clock, OTHER, replace(ALARM, id=30), NAMELESS, NAMELESS_ALARM, key=KEY)
        assert (again.accepted, again.duplicates) == (2, 2)
        assert sizes(stores) == {DEFAULT_LANE: 3, "alarms": 3}
        assert stores.trouble() == ""


async def test_a_pack_that_comes_again_brings_its_invalid_events_once_though_its_events_are_of_another_lane(
    tmp_path: Path, clock: HandClock
) -> None:
    first, other = (Reject("urn:a", "coap", START, "no data", raw) for raw in (b"raw", b"other"))
    async with opened(tmp_path, clock, ALARMS) as stores:
        for _ in range(3):
            await accept(stores.intake, clock, ALARM, rejects=(first,))
        assert read_status(tmp_path, GATEWAY).rejected == 1
        await accept(stores.intake, clock, ALARM, rejects=(first, other))
        for _ in range(2):
            await accept(stores.intake, clock, rejects=(first,))
    assert read_status(tmp_path, GATEWAY).rejected == 4


async def test_a_lane_that_is_no_longer_configured_keeps_its_events_and_gets_no_others(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(tmp_path, clock, ALARMS) as stores:
        await accept(stores.intake, clock, ALARM)
    async with opened(tmp_path, clock) as stores:
        assert sizes(stores) == {DEFAULT_LANE: 0, "alarms": 1}
        await accept(stores.intake, clock, replace(ALARM, id=30))
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
        outbox = stores.outboxes["alarms"]
        end = stored_events(stores.by_lane["alarms"])[-1].position
        outbox.mark_forwarded(batch(1, end))
        outbox.mark_processed(outbox.forwarded())
        assert replace(stores.lane_counts()["alarms"], processed=0) == EventCounts(0, 0, 0)


async def test_a_full_lane_refuses_its_own_events_only(tmp_path: Path, clock: HandClock) -> None:
    lanes = (Lane("bulk", -1, type="bulk"),)
    settings = Settings(
        GatewaySettings(GATEWAY, tmp_path),
        KafkaSettings("127.0.0.1:1"),
        store=StoreSettings(max_bytes=16 * 80_000),
        forward=ForwardSettings(lanes=lanes),
    )
    async with lane_stores(settings, clock) as stores:
        assert stores.bytes_max == 16 * 80_000
        for number in range(100):
            bulk = Event("urn:a", type="bulk", id=number, data={"x": f"{number}" * 3_000})
            if (await accept(stores.intake, clock, bulk)).refusal:
                break
        else:
            pytest.fail("the lane is never full")
        assert stores.trouble().startswith("lane bulk, the store is full")
        assert (await accept(stores.intake, clock, READING)).accepted == 1
        assert "full" in (await accept(stores.intake, clock, OTHER, bulk)).refusal


async def test_the_memory_of_fingerprints_is_divided(tmp_path: Path) -> None:
    clock: Clock = HandClock()
    settings = Settings(
        GatewaySettings(GATEWAY, tmp_path),
        KafkaSettings("127.0.0.1:1"),
        identity=IdentitySettings(memory_bytes=16 << 20),
        forward=ForwardSettings(lanes=(ALARMS,)),
    )
    bounds = lane_stores(settings, clock).by_lane["alarms"]._bounds
    assert bounds.memory_bytes == 1 << 20
    assert bounds.filter_bytes > 0


async def test_what_the_agent_has_written_is_counted_once(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, clock, ALARMS, DOORS) as stores:
        await accept(stores.intake, clock, READING, ALARM, DOOR)
        assert stores.written_bytes() == stores.by_lane[DEFAULT_LANE].written_bytes()
