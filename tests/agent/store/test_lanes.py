"""The stores of several lanes and their folders: a delivery is divided, answered as a whole, and recognised again."""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from agent.store.errors import StoreError
from agent.store.files import use_mark
from agent.store.files.folders import LANES_FOLDER, foreign_folders, store_folders
from agent.store.lanes import LaneStores, lane_stores
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.schema import database
from contract.event import Event, Label
from tests.agent.store.stores import (
    GATEWAY,
    START,
    Faulty,
    HandClock,
    accept,
    batch,
    candidate,
    stored_events,
    submit,
)

ALARMS = Lane("alarms", 10, type="alarm")
DOORS = Lane("doors", 5, device="urn:door:*")
READING, OTHER = (Event("urn:a", id=number, data={"x": number}) for number in (1, 2))
ALARM = Event("urn:a", type="alarm", id=3, data={"x": 3})
DOOR = Event("urn:door:1", id=4, data={"x": 4})
NAMELESS = Event("urn:a", data={"x": 5})
KEY = bytes(range(16))


@asynccontextmanager
async def opened(
    folder: Path,
    *lanes: Lane,
    clock: HandClock | None = None,
    connects: Mapping[str, database.Connect] | None = None,
    **sections: Any,
) -> AsyncIterator[LaneStores]:
    """Open the stores of lanes; `connects` replaces how the store of a lane is opened."""
    gateway, forward = GatewaySettings(GATEWAY, folder), ForwardSettings(lanes=lanes)
    settings = Settings(gateway, KafkaSettings("127.0.0.1:1"), forward=forward, **sections)
    stores = lane_stores(settings, clock or HandClock())
    for lane, connect in (connects or {}).items():
        stores.by_lane[lane]._connect = connect
    async with stores:
        yield stores


def sizes(stores: LaneStores) -> dict[str, int]:
    """Count the events of sensors in each lane."""
    events = {lane: stored_events(store) for lane, store in stores.by_lane.items()}
    return {lane: sum(b'"via":"gateway"' not in event.tail for event in found) for lane, found in events.items()}


async def test_without_lanes_there_is_one_store_and_nothing_before_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        assert stores.intake is stores.by_lane[DEFAULT_LANE]
        assert stores.lane_counts() == {}
    assert not (tmp_path / "lanes").exists()


async def test_a_divided_delivery_has_one_outcome_in_the_order_of_its_events(tmp_path: Path, clock: HandClock) -> None:
    async with opened(tmp_path, ALARMS, DOORS) as stores:
        await accept(stores, OTHER, DOOR)
        outcome = await accept(stores, READING, ALARM, OTHER, DOOR, replace(ALARM, id=30))
        assert (outcome.accepted, outcome.duplicates, outcome.refusal) == (3, 2, "")
        assert outcome.new == (True, True, False, False, True)
        events = (READING, ALARM, OTHER, DOOR, replace(ALARM, id=30))
        assert outcome.fingerprints == tuple(candidate(clock, event).fingerprint for event in events)
        again = await accept(stores, *events)
        assert (again.accepted, again.duplicates, again.fingerprints) == (0, 5, outcome.fingerprints)
        assert sizes(stores) == {DEFAULT_LANE: 2, "alarms": 2, "doors": 1}
        begun = {lane: stored_events(store)[0].tail for lane, store in stores.by_lane.items()}
    assert (b'"lane":"alarms"' in begun["alarms"], b'"lane"' in begun[DEFAULT_LANE]) == (True, False)


@pytest.mark.guarantee(1)
async def test_of_who_has_his_share_copies_are_acked_and_nothing_new_is_stored(tmp_path: Path) -> None:
    known, more = (READING, ALARM, NAMELESS), replace(ALARM, id=30)
    async with opened(tmp_path, ALARMS) as stores:
        first, again = await asyncio.gather(
            submit(stores, *known, key=KEY), submit(stores, *known, key=KEY, refusal="no")
        )
        assert (first.accepted, again.accepted, again.duplicates, again.refusal) == (3, 0, 3, "")
        for new in ((OTHER,), (READING, OTHER), (READING, more), (NAMELESS,)):
            assert (await accept(stores, *new, refusal="no")).refusal == "no"
        assert (await accept(stores, *known, key=KEY, refusal="no")).fingerprints == first.fingerprints
        assert sizes(stores) == {DEFAULT_LANE: 2, "alarms": 1}


@pytest.mark.parametrize("event", [READING, ALARM], ids=["one lane", "its events are of another lane"])
async def test_a_pack_that_comes_again_brings_its_invalid_events_once(tmp_path: Path, event: Event) -> None:
    first, other = (Reject("urn:a", "coap", START, "no data", raw) for raw in (b"raw", b"other"))
    async with opened(tmp_path, ALARMS) as stores:
        for _ in range(3):
            await accept(stores, event, rejects=(first,))
        assert read_status(tmp_path, GATEWAY).rejected == 1
        await accept(stores, event, rejects=(first, other))
        for _ in range(2):
            await accept(stores, rejects=(first,))
    assert read_status(tmp_path, GATEWAY).rejected == 4


async def test_a_lane_that_is_no_longer_configured_keeps_its_events_and_gets_no_others(tmp_path: Path) -> None:
    async with opened(tmp_path, ALARMS) as stores:
        await accept(stores, ALARM)
        configured = stores.bytes_max
    async with opened(tmp_path) as stores:
        assert stores.bytes_max == configured
        assert sizes(stores) == {DEFAULT_LANE: 0, "alarms": 1}
        await accept(stores, replace(ALARM, id=30))
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
        outbox = stores.outboxes["alarms"]
        end = stored_events(stores.by_lane["alarms"])[-1].position
        outbox.mark_forwarded(batch(1, end))
        outbox.mark_processed(outbox.forwarded())
        assert replace(stores.lane_counts()["alarms"], processed=0) == EventCounts(0, 0, 0)


async def test_a_full_lane_refuses_its_own_events_only(tmp_path: Path, clock: HandClock) -> None:
    lane = Lane("bulk", -1, type="bulk")
    store, identity = StoreSettings(max_bytes=16 * 80_000), IdentitySettings(memory_bytes=16 << 20)
    async with opened(tmp_path, lane, clock=clock, store=store, identity=identity) as stores:
        assert stores.bytes_max == 16 * 80_000
        assert stores.by_lane["bulk"]._bounds.memory_bytes == 1 << 20, "the memory of fingerprints is divided as well"
        for number in range(100):
            bulk = Event("urn:a", type="bulk", id=number, data={"x": f"{number}" * 3_000})
            if (await accept(stores, bulk)).refusal:
                break
        else:
            pytest.fail("the lane is never full")
        assert stores.trouble().startswith("lane bulk, the store is full")
        assert (await accept(stores, READING)).accepted == 1
        refused = await accept(stores, OTHER, bulk)
        assert ("full" in refused.refusal, refused.retry_seconds) == (True, 60)


async def test_what_the_agent_has_written_is_counted_once(tmp_path: Path) -> None:
    async with opened(tmp_path, ALARMS, DOORS) as stores:
        await accept(stores, READING, ALARM, DOOR)
        assert stores.written_bytes() == stores.by_lane[DEFAULT_LANE].written_bytes()


@pytest.mark.parametrize(
    "make",
    [Path.touch, lambda place: place.symlink_to("missing"), lambda place: place.symlink_to(place.name)],
    ids=["a file", "a dangling link", "a link to itself"],
)
async def test_something_else_in_the_place_of_a_lanes_folder_is_named(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    place = tmp_path / LANES_FOLDER / "alarms"
    place.parent.mkdir()
    make(place)
    with pytest.raises(StoreError, match=f"{place}: neither a folder nor a link to one"):
        await opened(tmp_path, ALARMS).__aenter__()
    place.unlink()
    async with opened(tmp_path, ALARMS) as stores:  # nothing was changed, and nothing is locked
        assert (await accept(stores, READING, ALARM)).accepted == 2


async def test_a_file_in_the_place_of_all_lanes_is_named(tmp_path: Path) -> None:
    (tmp_path / LANES_FOLDER).write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        await opened(tmp_path, ALARMS).__aenter__()


async def test_a_lanes_folder_may_be_a_link_to_a_folder_of_its_own(tmp_path: Path) -> None:
    state, other = tmp_path / "state", tmp_path / "other"
    other.mkdir()
    (state / LANES_FOLDER).mkdir(parents=True)
    (state / LANES_FOLDER / "alarms").symlink_to(other)
    async with opened(state, ALARMS) as stores:
        await accept(stores, READING, ALARM)
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
    assert (other / FILE_NAME).exists()


@pytest.mark.parametrize("target", ["..", "doors"])
async def test_two_lanes_never_have_one_store(tmp_path: Path, target: str) -> None:
    doors = replace(ALARMS, name="doors", type="door")
    async with opened(tmp_path, doors):
        pass
    (tmp_path / LANES_FOLDER / "alarms").symlink_to(target)
    with pytest.raises(StoreError, match="is using this store"):
        await opened(tmp_path, doors, ALARMS).__aenter__()


@pytest.mark.parametrize("name", [DEFAULT_LANE, "Alarms", "alarms.bak", "alarms gone", "-alarms"])
async def test_a_store_under_a_name_that_no_lane_can_have_is_not_used_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with opened(tmp_path, ALARMS) as stores:
        await accept(stores, READING, ALARM)
    foreign = tmp_path / LANES_FOLDER / name
    shutil.copytree(tmp_path / LANES_FOLDER / "alarms", foreign)
    async with opened(tmp_path, ALARMS) as stores:
        assert sizes(stores) == {DEFAULT_LANE: 1, "alarms": 1}
        await accept(stores, OTHER)
        assert sizes(stores) == {DEFAULT_LANE: 2, "alarms": 1}
    assert foreign_folders(tmp_path) == [foreign]
    assert f"lanes=foreign folder={foreign}" in caplog.text
    assert store_folders(tmp_path) == {DEFAULT_LANE: tmp_path, "alarms": tmp_path / LANES_FOLDER / "alarms"}


async def test_a_lane_that_is_left_and_whose_file_is_missing_declares_the_loss(tmp_path: Path) -> None:
    async with opened(tmp_path, ALARMS) as stores:
        await accept(stores, ALARM)
    file = tmp_path / LANES_FOLDER / "alarms" / FILE_NAME
    file.unlink()
    use_mark.mark_of(file).touch()
    async with opened(tmp_path) as stores:
        await stores.barrier()
        assert any(b"gateway.gap" in event.tail for event in stored_events(stores.by_lane["alarms"]))


@pytest.mark.guarantee(4)
async def test_a_lane_from_an_older_copy_assigns_no_label_again_and_the_other_lane_recognises_resends(
    tmp_path: Path, clock: HandClock
) -> None:
    lane, copy = tmp_path / LANES_FOLDER / "alarms", tmp_path / "copy"
    given: dict[Label, bytes] = {}
    other = replace(ALARM, id=30)
    for events in ((READING, ALARM), (OTHER, other), (OTHER, other, replace(ALARM, id=31))):
        clock.pass_seconds(5)
        async with opened(tmp_path, ALARMS, clock=clock) as stores:
            outcome = await accept(stores, *events)
            for store in stores.by_lane.values():
                for event in stored_events(store):
                    assert given.setdefault(event.label, event.fingerprint) == event.fingerprint
        if not copy.exists():
            shutil.copytree(lane, copy)
        else:
            shutil.rmtree(lane)
            shutil.copytree(copy, lane)
    assert (outcome.accepted, outcome.duplicates) == (2, 1)  # the copy does not have the alarm


LANES = (Lane("alarms", 10, type="alarm"), Lane("doors", -1, device="urn:door"))
KINDS = (("urn:a", "reading"), ("urn:a", "alarm"), ("urn:door", "reading"), ("urn:door", "alarm"))
LANE_OF = (DEFAULT_LANE, "alarms", "doors", "alarms")

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), min_size=1, max_size=6)
"""Each the index of a kind, and an id."""
STEP = st.one_of(
    st.tuples(st.just("deliver"), EVENTS),
    st.tuples(st.just("fail"), st.sampled_from([DEFAULT_LANE, "alarms", "doors"])),
    st.tuples(st.just("restart"), st.none()),
)


def _event(kind: int, number: int) -> Event:
    device, type_ = KINDS[kind]
    return Event(device, type=type_, id=number, data={"x": number})


@pytest.mark.guarantee(1)
@settings(max_examples=30)
@given(st.lists(STEP, min_size=1, max_size=25))
async def test_nothing_acked_is_missing_and_nothing_is_stored_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    clock = HandClock()
    faults = {lane: Faulty() for lane in {*LANE_OF}}
    connects = {lane: faulty.connect for lane, faulty in faults.items()}
    acked: set[tuple[int, int]] = set()
    failing: str | None = None
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(opened(folder, *LANES, clock=clock, connects=connects))
        for name, value in steps:
            clock.pass_seconds(1)
            if name == "fail":
                failing = str(value)
                continue
            if name == "restart":
                await stack.aclose()
                stores = await stack.enter_async_context(opened(folder, *LANES, clock=clock, connects=connects))
            else:
                assert isinstance(value, list)
                if failing is not None:
                    faults[failing].fault = "COMMIT"
                outcome = await accept(stores, *(_event(*one) for one in value))
                if outcome.refusal:
                    assert failing is not None
                    assert outcome.retry_seconds > 0
                else:
                    assert outcome.accepted + outcome.duplicates == len(value) == len(outcome.fingerprints)
                    acked.update(value)
                if failing is not None:
                    faults[failing].fault = ""
            failing = None
        events = {lane: stored_events(store) for lane, store in stores.by_lane.items()}
    lanes = {lane: [event.fingerprint for event in found] for lane, found in events.items()}
    labels = Counter(event.label for found in events.values() for event in found)
    assert max(Counter(name for names in lanes.values() for name in names).values(), default=1) == 1
    assert max(labels.values(), default=1) == 1
    for kind, number in acked:
        assert candidate(clock, _event(kind, number)).fingerprint in lanes[LANE_OF[kind]]
