"""Duplicates without a commit of their own, and equal data of one Zigbee device within two seconds."""

from contextlib import closing
from pathlib import Path

import pytest

from agent.status import read_status
from agent.store.errors import DamagedStoreError
from agent.store.fingerprints import fingerprint_rows
from agent.store.layout import FILE_NAME
from agent.store.recovery.verify import verify
from agent.store.schema import database
from agent.store.write import maintenance
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.stores import GATEWAY, HandClock, accept, change, commits, make_store, stored_events, submit
from tests.support.waiting import until

ONE, TWO = (Event("urn:dev:mac:00158d0001a2b3c4", id=number, data={"t": 21}) for number in (1, 2))


def listed(folder: Path) -> list[fingerprint_rows.Duplicate]:
    with closing(database.open_for_reading(folder / FILE_NAME)) as connection:
        return fingerprint_rows.latest_duplicates(connection, 100)


@pytest.mark.guarantee(2)
async def test_copies_that_a_transport_answers_are_counted_soon_though_no_new_event_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: HandClock
) -> None:
    monkeypatch.setattr(maintenance, "MARKS_MS", 20)  # transport duplicates wake no thread
    monkeypatch.setattr(maintenance, "DUPLICATES_MS", 20)
    counted = 0
    async with make_store(tmp_path, clock) as store:
        store.add_transport(lambda: counted, lambda: None)
        await accept(store, ONE)
        counted = 3

        def shown() -> bool:
            clock.pass_seconds(0.1)
            return read_status(tmp_path, GATEWAY).duplicates == counted

        await until(shown, "the duplicates are counted on disk")
        assert listed(tmp_path) == []


@pytest.mark.guarantee(2)
async def test_duplicates_alone_cause_no_commit_before_they_have_waited_for_another(tmp_path: Path) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock) as store:
        await accept(store, ONE)
        written = commits(store)
        for _ in range(maintenance.DUPLICATES_MS // 1000):
            await accept(store, ONE)
            await store.barrier()
            assert commits(store) == written
            clock.pass_seconds(1)
        for _ in range(100):  # the writer may have noticed the first one some iterations later
            if commits(store) > written:
                break
            await store.barrier()
            clock.pass_seconds(1)
        assert commits(store) == written + 1
        assert read_status(tmp_path, GATEWAY).duplicates == maintenance.DUPLICATES_MS // 1000


@pytest.mark.guarantee(7)
async def test_a_row_lists_the_latest_of_its_duplicates_and_counts_all(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, ONE, TWO)
        for _ in range(fingerprint_rows.REPEATS_MAX):
            await accept(store, ONE)
        store.outbox.set_fact("name", "a write that carries duplicates")
        await accept(store, TWO)
    repeated = [duplicate.position for duplicate in listed(tmp_path)]
    assert repeated == [2] * (fingerprint_rows.REPEATS_MAX - 1) + [3]
    assert read_status(tmp_path, GATEWAY).duplicates == fingerprint_rows.REPEATS_MAX + 1
    assert verify(tmp_path / FILE_NAME).findings == ()


@pytest.mark.guarantee(7)
async def test_a_latest_row_that_is_damaged_is_met_as_damage(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, ONE)
        store.outbox.set_fact("name", "nothing is pending")
        change(tmp_path, "UPDATE fingerprints SET service_ms = service_ms + 1")
        await accept(store, ONE)
        with pytest.raises(DamagedStoreError):
            store.outbox.set_fact("name", "a write that carries duplicates")
        with pytest.raises(DamagedStoreError):
            await store.failed


@pytest.mark.guarantee(2)
async def test_copies_that_were_refused_with_their_event_are_not_counted(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with make_store(tmp_path, connect=disk.connect) as store:
        with disk.failing(Fault(Operation.FLUSH, Error.BROKEN)):
            assert (await accept(store, ONE, ONE)).refusal
        assert (await accept(store, ONE, ONE)).duplicates == 1
    assert read_status(tmp_path, GATEWAY).duplicates == 1


DEVICE = "urn:dev:mac:00158d0001234567"
MARK = b'"possible_duplicate_of"'


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("seconds", "is_marked"), [(0, True), (2, True), (2.1, False)])
async def test_equal_data_within_two_seconds_is_kept_and_names_the_earlier(
    tmp_path: Path, seconds: float, is_marked: bool, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await submit(store, Event(DEVICE, time=1, data={"action": "single"}), via="zigbee2mqtt")
        clock.pass_seconds(seconds)
        await submit(store, Event(DEVICE, time=2, data={"action": "single"}), via="zigbee2mqtt")
        started, first, second = stored_events(store)
    assert MARK not in started.tail + first.tail
    assert (MARK in second.tail) is is_marked
    assert (first.fingerprint.hex().encode() in second.tail) is is_marked


async def test_other_data_another_device_and_other_ways_in_are_not_marked(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await submit(store, Event(DEVICE, time=1, data={"action": "single"}), via="zigbee2mqtt")
        await submit(store, Event(DEVICE, time=2, data={"action": "double"}), via="zigbee2mqtt")
        await submit(store, Event(f"{DEVICE}8", time=3, data={"action": "single"}), via="zigbee2mqtt")
        await submit(store, Event(DEVICE, time=4, data={"action": "single"}), via="coap")
        events = stored_events(store)
    assert [MARK in event.tail for event in events] == [False] * 5
