"""A full file system: the store opens, reads and acks duplicates, and continues by itself once there is space.

The space that its log will add to the file is kept free.
"""

import asyncio
import errno
import os
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from agent.store.errors import DiskFullError, StoreError
from agent.store.event_store import EventStore
from agent.store.files import swap
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.port import OutboxError
from agent.store.schema import database, disk_space
from agent.systemd.notifier import wait_for_space
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.fingerprints.test_sealing import sealed
from tests.agent.store.recovery.damaged import Original, check, copy, survivors
from tests.agent.store.stores import (
    HandClock,
    accept,
    crash_image,
    holding_the_log,
    make_store,
    mark_processed,
    process_all,
    stored_events,
    take_turns,
)
from tests.support.disks.small_disk import small_disk
from tests.support.flushes import refusing

TEXT = "x" * 3_000
FULL = ("", "-wal")


def event(number: int) -> Event:
    return Event("d", id=number, data={"text": TEXT})


@pytest.mark.guarantee(3)
async def test_it_opens_reads_and_acks_copies_on_a_full_disk_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with make_store(tmp_path / "live") as store:
        for number in range(50):
            await accept(store, event(number))
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    system = FailingDisk()
    with system.failing(Fault(Operation.WRITE, Error.FULL, FULL)) as fault:
        async with make_store(image, connect=system.connect) as store:
            assert len(stored_events(store)) == 51
            assert (await accept(store, event(7))).duplicates == 1
            assert "full" in (await accept(store, event(100))).refusal
            assert "full" in store.trouble(trial=True)
            mark_processed(store, 1, 51)
            assert fault.hits
            system.fault = None
            assert not store.trouble(trial=True)
            assert (await accept(store, event(100))).accepted == 1
    async with make_store(image) as store:
        assert (await accept(store, event(100))).duplicates == 1
        assert store.counts().processed == 51
    assert not any(swap.damaged_files(image / FILE_NAME))


@pytest.mark.guarantee(3)
async def test_new_events_leave_the_last_of_the_disk_to_receipts_and_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_store(tmp_path, keep_processed_seconds=10**9) as store:
        for number in range(700):
            await accept(store, *(event(10 * number + place) for place in range(5)))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES - 1)
        assert (await accept(store, event(10**6))).refusal == disk_space.DISK_FULL
        assert store.trouble() == disk_space.DISK_FULL
        assert (await accept(store, event(0))).duplicates == 1
        process_all(store)
        # Processed events are purged for it: from then on the file's own free pages are the space.
        assert not store.trouble()
        assert (await accept(store, event(10**6))).accepted == 1


@pytest.mark.guarantee(3)
async def test_a_store_that_refuses_for_lack_of_space_says_so_however_little_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1 << 40]
    monkeypatch.setattr(disk_space, "free_bytes", lambda path: free[-1])
    async with make_store(tmp_path) as store:
        for number in range(1_000):
            if (await accept(store, event(number))).refusal:
                break
            free.append(disk_space.RESERVE_BYTES + (1 << 20) - number * PAGE_BYTES)
        assert store.trouble() == disk_space.DISK_FULL
        free.append(1 << 40)
        assert not store.trouble()
        assert (await accept(store, event(10**6))).accepted == 1


@pytest.mark.guarantee(3, 7)
@pytest.mark.parametrize(
    ("fault", "reason", "error"),
    [
        (Error.FULL, errno.ENOSPC, DiskFullError),
        (Error.BROKEN, errno.EDQUOT, DiskFullError),  # a quota, which SQLite calls an input/output error
        (Error.BROKEN, errno.EIO, StoreError),
    ],
)
async def test_a_salvage_without_room_leaves_the_damaged_file_and_no_other_and_says_what_it_needs(
    original: Original,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Error,
    reason: int,
    error: type[StoreError],
) -> None:
    folder = copy(original, tmp_path / "image")
    path = folder / FILE_NAME
    swap.suspect(path, "set by the test")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    system = FailingDisk()
    for _ in range(2):
        with monkeypatch.context() as patch, system.failing(Fault(Operation.WRITE, fault, after=20, suffixes=("",))):
            patch.setattr(database, "open_for_service", system.connect)
            patch.setattr(os, "posix_fallocate", refusing(reason))
            with pytest.raises(error) as raised:
                async with make_store(folder, connect=system.connect):
                    pass
        assert raised.type is error
        if isinstance(raised.value, DiskFullError):
            assert raised.value.needed_bytes == database.disk_bytes(path)
            assert str(raised.value.needed_bytes) in str(raised.value)
        after = {file.name: file.read_bytes() for file in folder.iterdir()}
        del after[f"{FILE_NAME}.lock"], after[f"{FILE_NAME}-shm"]  # the index, which is rebuilt
        assert after == before
    check(original, await survivors(folder))


@pytest.mark.guarantee(7)
async def test_what_an_interrupted_salvage_has_left_gives_its_room_back(original: Original, tmp_path: Path) -> None:
    folder = copy(original, tmp_path / "image")
    for part in ("", "-wal", "-shm", "-journal"):
        (folder / f"{FILE_NAME}.salvaging{part}").write_bytes(bytes(100_000))
    async with make_store(folder):
        assert not list(folder.glob("*.salvaging*"))


async def test_it_waits_for_room_and_tries_again_when_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent.systemd.notifier.SPACE_SECONDS", 0.01)
    free = iter([900, 900, 1_000, 900_000, 10_000_000])
    monkeypatch.setattr(disk_space, "free_bytes", lambda path: next(free))
    await asyncio.wait_for(wait_for_space(DiskFullError("the store", 5_000_000, 900), tmp_path, asyncio.Event()), 20)
    assert next(free) == 10_000_000, "far less than all may be enough, but a little more is not worth a trial"
    assert "store=waiting" in caplog.text
    assert "needed_bytes=5000000" in caplog.text


async def test_told_to_stop_it_waits_no_longer(tmp_path: Path) -> None:
    stop = asyncio.Event()
    stop.set()
    await asyncio.wait_for(wait_for_space(DiskFullError("the store", 1 << 60, 0), tmp_path, stop), 20)


PACK = 80
FACTS_MAX, FACT_BYTES = 1_000, 20_000


def pack(first: int) -> tuple[Event, ...]:
    """Return incompressible events of 3,000 bytes each."""
    chance = Random(first)
    return tuple(
        Event("d", id=number, data={"text": chance.randbytes(1_500).hex()}) for number in range(first, first + PACK)
    )


async def fill_store(store: EventStore) -> int:
    """Send packs until one is refused; return how many were acked."""
    for acked in range(10_000):
        if (await accept(store, *pack(acked * PACK))).refusal:
            return acked
    raise AssertionError("never full")


def write_facts(store: EventStore) -> None:
    for number in range(FACTS_MAX):
        store.outbox.set_fact("a fact", f"{number}" * FACT_BYTES)


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize(("megabytes", "ends_while_it_serves"), [(24, True), (24, False), (48, True)])
async def test_a_disk_that_the_log_has_taken_while_a_reader_held_it_is_used_again_once_the_reader_ends(
    tmp_path: Path, megabytes: int, *, ends_while_it_serves: bool
) -> None:
    with small_disk(tmp_path / "disk", megabytes) as folder, ExitStack() as reading:
        path = folder / FILE_NAME
        async with make_store(folder) as store:
            await accept(store, Event("d", id="first"))
            reading.enter_context(holding_the_log(folder))
            acked = await fill_store(store)
            assert (await accept(store, *pack(0))).duplicates == PACK
            store.outbox.set_fact("a fact", "the reserve takes it")
            # Facts represent all writes besides events: marks, deletes, sealing.
            with pytest.raises(OutboxError):
                write_facts(store)
            assert disk_space.free_bytes(path) > 0
            if ends_while_it_serves:
                reading.close()
                assert not store.trouble(trial=True)
                store.outbox.set_fact("a fact", "the reader has ended")
        reading.close()
        async with make_store(folder) as store:
            assert not store.trouble(trial=True)
            assert (await accept(store, *pack(0))).duplicates == PACK
            assert sum(b'"device":"d"' in event.tail for event in stored_events(store)) == acked * PACK + 1
            process_all(store)
            assert (await accept(store, *pack(10**6))).accepted == PACK


@pytest.mark.guarantee(3)
async def test_a_segment_which_takes_room_first_waits_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_store(tmp_path, segment_events=32) as store:
        for number in range(20):
            await accept(store, Event("d", id=number))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES + (64 << 10))
        for number in range(20, 60):
            if (await accept(store, Event("d", id=number))).refusal:
                break
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES - 1)
        store.trouble()  # the turn that had still found space is over
        before = len(sealed(tmp_path))
        take_turns(store, 100)
        assert len(sealed(tmp_path)) == before
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: 1 << 40)
        for number in range(60, 100):
            assert (await accept(store, Event("d", id=number))).accepted == 1
        take_turns(store, 500)
        assert len(sealed(tmp_path)) > before


@pytest.mark.guarantee(3)
async def test_what_is_dropped_on_a_full_disk_is_what_is_missing_and_no_more(tmp_path: Path, clock: HandClock) -> None:
    with small_disk(tmp_path / "disk", 40) as folder:
        state = folder / "state"
        async with make_store(state, clock, when_full="drop-oldest") as store:
            for number in range(150):
                await accept(store, *pack(number * PACK))
            before, filler = store.counts().new, folder / "filler"
            for number in range(150, 180):
                take_all_but(filler, 3 << 20)  # other programs take all space that the store returns
                assert (await accept(store, *pack(number * PACK))).accepted == PACK
                clock.pass_seconds(11)
                store.trouble()  # an iteration of the writer, which may return space
            assert store.counts().new > before / 2
            assert not store.failed.done()
            declarations = sum(b"gateway.gap" in event.tail for event in stored_events(store))
            assert 0 < declarations < 30


def take_all_but(filler: Path, bytes_left: int) -> None:
    with filler.open("ab", buffering=0) as file:
        while (excess := disk_space.free_bytes(filler) - bytes_left) > 0:
            file.write(bytes(min(excess, 1 << 20)))
