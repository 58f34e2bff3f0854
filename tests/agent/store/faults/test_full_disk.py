"""A full file system: the store opens, reads and acks duplicates, and continues by itself once there is space."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from agent.store.errors import DiskFullError, StoreError
from agent.store.files import swap
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.schema import database, disk_space
from agent.systemd.supervision import wait_for_space
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.recovery.damaged import Original, check, copy, make_original, survivors
from tests.agent.store.stores import HandClock, accept, batch, crash_image, make_store, process_all, stored_events

TEXT = "x" * 3_000
FULL = ("", "-wal")


def event(number: int) -> Event:
    return Event("d", id=number, data={"text": TEXT})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("full"))


@pytest.mark.guarantee(3)
async def test_it_opens_reads_and_acks_copies_on_a_full_disk_and_goes_on_when_there_is_room(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path / "live", clock) as store:
        for number in range(50):
            await accept(store, clock, event(number))
        image = crash_image(tmp_path / "live", tmp_path / "killed")
    system = FailingDisk()
    with system.failing(Fault(Operation.WRITE, Error.FULL, FULL)) as fault:
        async with make_store(image, clock, connect=system.connect) as store:
            assert len(stored_events(store)) == 51
            assert (await accept(store, clock, event(7))).duplicates == 1
            assert "full" in (await accept(store, clock, event(100))).refusal
            assert "full" in store.trouble(trial=True)
            store.outbox.mark_forwarded(batch(1, 51))
            store.outbox.mark_processed(store.outbox.forwarded())
            assert fault.hits
            system.fault = None
            assert not store.trouble(trial=True)
            assert (await accept(store, clock, event(100))).accepted == 1
    async with make_store(image, clock) as store:
        assert (await accept(store, clock, event(100))).duplicates == 1
        assert store.counts().processed == 51
    assert not any(swap.damaged_files(image / FILE_NAME))


@pytest.mark.guarantee(3)
async def test_new_events_leave_the_last_of_the_disk_to_receipts_and_deletes(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_store(tmp_path, clock, keep_processed_seconds=10**9) as store:
        for number in range(700):
            await accept(store, clock, *(event(10 * number + place) for place in range(5)))
        monkeypatch.setattr(disk_space, "free_bytes", lambda path: disk_space.RESERVE_BYTES - 1)
        assert (await accept(store, clock, event(10**6))).refusal == disk_space.DISK_FULL
        assert store.trouble() == disk_space.DISK_FULL
        assert (await accept(store, clock, event(0))).duplicates == 1
        process_all(store)
        # Processed events are purged for it: from then on the file's own free pages are the space.
        assert not store.trouble()
        assert (await accept(store, clock, event(10**6))).accepted == 1


@pytest.mark.guarantee(3)
async def test_a_store_that_refuses_for_lack_of_space_says_so_however_little_is_missing(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [1 << 40]
    monkeypatch.setattr(disk_space, "free_bytes", lambda path: free[-1])
    async with make_store(tmp_path, clock) as store:
        for number in range(1_000):
            if (await accept(store, clock, event(number))).refusal:
                break
            free.append(disk_space.RESERVE_BYTES + (1 << 20) - number * PAGE_BYTES)
        assert store.trouble() == disk_space.DISK_FULL
        free.append(1 << 40)
        assert not store.trouble()
        assert (await accept(store, clock, event(10**6))).accepted == 1


@pytest.mark.guarantee(7)
async def test_a_salvage_without_room_leaves_the_damaged_file_and_no_other_and_says_what_it_needs(
    original: Original, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(original, tmp_path / "image")
    path = folder / FILE_NAME
    swap.suspect(path, "set by the test")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    system = FailingDisk()
    monkeypatch.setattr(database, "open_for_service", system.connect)
    for _ in range(2):
        with (
            system.failing(Fault(Operation.WRITE, Error.FULL, after=20, suffixes=("",))),
            pytest.raises(DiskFullError) as full,
        ):
            async with make_store(folder, HandClock(), connect=system.connect):
                pass
        assert full.value.needed_bytes == database.disk_bytes(path)
        assert str(full.value.needed_bytes) in str(full.value)
        after = {file.name: file.read_bytes() for file in folder.iterdir()}
        del after[f"{FILE_NAME}.lock"], after[f"{FILE_NAME}-shm"]  # the index, which is rebuilt
        assert after == before
    check(original, await survivors(folder))


@pytest.mark.guarantee(3)
@pytest.mark.parametrize(("reason", "error"), [(errno.EDQUOT, DiskFullError), (errno.EIO, StoreError)])
async def test_a_quota_that_sqlite_calls_an_input_output_error_is_a_full_disk(
    original: Original,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: int,
    error: type[StoreError],
) -> None:
    folder = copy(original, tmp_path / "image")
    swap.suspect(folder / FILE_NAME, "set by the test")
    system = FailingDisk()
    monkeypatch.setattr(database, "open_for_service", system.connect)

    def refuse(*_: int) -> None:
        raise OSError(reason, os.strerror(reason))

    with monkeypatch.context() as patch, system.failing(Fault(Operation.WRITE, Error.BROKEN, FULL, after=20)):
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(error) as raised:
            async with make_store(folder, HandClock(), connect=system.connect):
                pass
    assert raised.type is error
    assert not list(folder.glob("*.salvaging*"))
    assert not list(folder.glob("*.probe"))
    check(original, await survivors(folder))


@pytest.mark.guarantee(7)
async def test_what_an_interrupted_salvage_has_left_gives_its_room_back(original: Original, tmp_path: Path) -> None:
    folder = copy(original, tmp_path / "image")
    for part in ("", "-wal", "-shm", "-journal"):
        (folder / f"{FILE_NAME}.salvaging{part}").write_bytes(bytes(100_000))
    async with make_store(folder, HandClock()):
        assert not list(folder.glob("*.salvaging*"))


async def test_it_waits_for_room_and_tries_again_when_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agent.systemd.supervision.SPACE_SECONDS", 0.01)
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
