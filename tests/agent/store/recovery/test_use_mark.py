"""A file or a log that is gone, older or changed, at a commit, an end or a start: what is missing is declared."""

import errno
import os
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.store.errors import DamagedStoreError, StoreError
from agent.store.event_store import EventStore
from agent.store.files import swap, use_mark
from agent.store.files.use_mark import LastCommit, UseMark
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES, LOG_HEADER_BYTES
from agent.store.schema import database, disk_space, gaps
from contract.event import Event
from tests.agent.store.faults.test_unknown_outcome import LOG, TEXT, damage_met, ids, what_a_kill_leaves
from tests.agent.store.recovery.damaged import Original, check, copy, event, survivors
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, stored_events, watched, write_back
from tests.support.flushes import refusing

EVENTS = [Event("d", id=number) for number in range(9)]
FILES_MAX = 256


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Exhaust the process's file descriptors within the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            taken.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(FILES_MAX))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def declares_loss(store: EventStore) -> bool:
    return any(b"gateway.gap" in event.tail for event in stored_events(store))


async def loses_log_silently(killed: Path) -> bool:
    """Whether a killed store without its log has neither its last event nor a gap for it."""
    (killed / LOG).unlink()
    async with make_store(killed) as store:
        await accept(store, Event("d", id=100))
        return not declares_loss(store) and EVENTS[-1].id not in ids(store)


@pytest.mark.guarantee(7)
async def test_the_last_position_is_noted_though_no_file_can_be_opened(tmp_path: Path) -> None:
    live = tmp_path / "live"
    async with make_store(live) as store:
        await accept(store, *EVENTS[:-1])
        write_back(store)
        with no_free_descriptor():
            assert (await accept(store, EVENTS[-1])).accepted == 1
        noted = use_mark.noted(live / FILE_NAME)
        assert noted is not None
        assert noted.end == stored_events(store)[-1].position
        killed = what_a_kill_leaves(live, tmp_path / "killed")
    assert not await loses_log_silently(killed)


@pytest.mark.guarantee(7)
async def test_a_mark_that_cannot_be_written_says_nothing_rather_than_an_older_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = tmp_path / "live"
    async with make_store(live) as store:
        await accept(store, *EVENTS[:-1])
        write_back(store)
        with monkeypatch.context() as patch:
            patch.setattr(use_mark, "os", SimpleNamespace(**{**vars(os), "pwrite": refusing(errno.ENOSPC)}))
            assert (await accept(store, EVENTS[-1])).accepted == 1
        killed = what_a_kill_leaves(live, tmp_path / "killed")
        await accept(store, Event("d", id=101))
        assert use_mark.noted(live / FILE_NAME) is not None
    assert not await loses_log_silently(killed)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("how", ["gone", "emptied", "cut", "damaged at its last commit", "of an earlier moment"])
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
async def test_a_log_that_has_lost_its_end_after_a_kill_is_a_loss(
    tmp_path: Path, clock: HandClock, how: str, boot: str
) -> None:
    live = tmp_path / "live"
    async with make_store(live, clock) as store:
        for event in EVENTS[:-1]:
            await accept(store, event)
        earlier = (live / LOG).read_bytes()
        await accept(store, EVENTS[-1])
        killed = what_a_kill_leaves(live, tmp_path / "killed")
    whole = (killed / LOG).read_bytes()
    frame = LOG_FRAME_BYTES
    left = {
        "emptied": b"",
        "cut": whole[:-frame],
        "damaged at its last commit": whole[:-frame] + bytes(frame),
        "of an earlier moment": earlier,
    }
    if how == "gone":
        (killed / LOG).unlink()
    else:
        (killed / LOG).write_bytes(left[how])
    clock.boot_name = boot
    async with make_store(killed, clock) as store:
        assert (await accept(store, EVENTS[-1])).accepted == 1, "what was lost is new again"
        assert declares_loss(store)
    async with make_store(killed, clock) as store:
        await accept(store, Event("d", id=100))
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1, "declared once"


@pytest.mark.guarantee(7)
async def test_a_kill_without_any_loss_declares_none(tmp_path: Path, clock: HandClock) -> None:
    folder = tmp_path / "0"
    for life in range(4):
        async with make_store(folder, clock) as store:
            assert (await accept(store, *EVENTS[: 2 * life + 1])).accepted == (2 if life else 1)
            store.outbox.give_up(1, "set by the test") if life == 1 else None
            clock.boot_name = f"boot-{life % 2}"
            killed = what_a_kill_leaves(folder, tmp_path / str(life + 1))
        folder = killed
    async with make_store(folder, clock) as store:
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_of_an_older_copy_of_the_log_nothing_is_read_and_what_the_file_has_stays(
    tmp_path: Path, *, is_killed: bool
) -> None:
    folder = tmp_path / "live"
    async with make_store(folder) as store:
        await accept(store, *EVENTS[:3])
        older = (folder / LOG).read_bytes()
        write_back(store)
        await accept(store, *EVENTS[3:6])
        write_back(store)
        await accept(store, *EVENTS[6:])
        if is_killed:
            folder = what_a_kill_leaves(folder, tmp_path / "killed")
            (folder / LOG).write_bytes(older)
        else:
            (folder / LOG).write_bytes(older)
            assert (await accept(store, Event("d", id=100))).refusal
    async with make_store(folder) as store:
        await accept(store, Event("d", id=101))
        assert ids(store) == [*range(6), 101]
        assert declares_loss(store)
    [kept] = folder.glob("*.damaged-*-older-wal")
    assert kept.read_bytes() == older


async def test_an_older_log_is_recognised_though_no_event_was_committed_to_the_present_one(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    async with make_store(folder) as store:
        await accept(store, *EVENTS[:3])
        older = (folder / LOG).read_bytes()
    async with make_store(folder) as store:
        store.outbox.set_fact("pinned", "a table")
        killed = what_a_kill_leaves(folder, tmp_path / "killed")
    (killed / LOG).write_bytes(older)
    async with make_store(killed) as store:
        await accept(store, Event("d", id=101))
        assert ids(store) == [*range(3), 101]
    [kept] = killed.glob("*.damaged-*-older-wal")
    assert kept.read_bytes() == older


@pytest.mark.guarantee(7)
async def test_a_reader_that_ends_between_the_last_checkpoint_and_the_last_close_leaves_no_suspicion(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[sqlite3.Connection] = []

    def end_reader(sql: str) -> None:
        """End the reader after it has kept the log from being emptied."""
        if readers and sql == "PRAGMA wal_checkpoint(TRUNCATE)":
            readers.pop().close()

    monkeypatch.setattr(database, "empty_log", partial(database.empty_log, wait_ms=50))
    async with make_store(tmp_path, clock, connect=watched(after=end_reader)) as store:
        await accept(store, Event("d", id=0))
        readers.append(database.open_for_reading(tmp_path / FILE_NAME))
        readers[0].execute("BEGIN")
        readers[0].execute("SELECT count(*) FROM events").fetchone()
    assert not readers
    assert not (tmp_path / LOG).exists()
    assert use_mark.noted(tmp_path / FILE_NAME) is None
    clock.boot_name = "boot-2"
    async with make_store(tmp_path, clock) as store:
        await accept(store, Event("d", id=1))
        assert not any(b"gateway.gap" in event.tail for event in stored_events(store))


@pytest.mark.guarantee(7)
async def test_a_log_of_which_others_have_cut_off_what_no_longer_counts_is_no_damage(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        for number in range(9):
            await accept(store, Event("d", id=number, data={"text": TEXT}))
        write_back(store)
        await accept(store, Event("d", id=9))
        os.truncate(tmp_path / LOG, (tmp_path / LOG).stat().st_size - LOG_FRAME_BYTES)
        assert (await accept(store, *(Event("d", id=number) for number in (9, 10)))).duplicates == 1
        assert not damage_met(store)


@pytest.mark.guarantee(7)
async def test_an_older_copy_of_the_log_is_not_written_into_the_file_to_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "LOG_BYTES_EXPECTED", 0)
    async with make_store(tmp_path) as store:
        for number in range(40):
            await accept(store, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
        older = (tmp_path / LOG).read_bytes()
        write_back(store)
        for number in range(100, 120):
            await accept(store, Event("d", id=number, data={"text": os.urandom(1_500).hex()}))
        assert (tmp_path / LOG).read_bytes()[:LOG_HEADER_BYTES] != older[:LOG_HEADER_BYTES]
        with (tmp_path / LOG).open("r+b") as file:
            file.write(older)
        before = (tmp_path / FILE_NAME).read_bytes()
        with pytest.raises(DamagedStoreError):
            store._writer.call(store._transactions.capacity.limit_log)
        assert (tmp_path / FILE_NAME).read_bytes() == before
        assert (await accept(store, Event("d", id=120))).refusal
    async with make_store(tmp_path) as store:
        assert set(ids(store)) >= set(range(40))


@pytest.mark.parametrize(("length", "has_frames"), [(32, False), (4096, False), (100_000, False), (32, True)])
async def test_a_log_of_zeros_is_an_empty_one_and_damage_where_its_header_alone_is(
    tmp_path: Path, *, length: int, has_frames: bool
) -> None:
    async with make_store(tmp_path / "live") as store:
        await accept(store, Event("d", id=0))
        if not has_frames:
            write_back(store)
        killed = crash_image(tmp_path / "live", tmp_path / "killed")
    frames = (killed / LOG).read_bytes()[length:] if has_frames else b""
    (killed / LOG).write_bytes(bytes(length) + frames)
    async with make_store(killed) as store:
        assert any(swap.damaged_files(killed / FILE_NAME)) is has_frames
        assert (await accept(store, Event("d", id=0), Event("d", id=1))).duplicates == 1
        assert not store.failed.done()


@pytest.fixture
def without_log(original: Original, tmp_path: Path) -> Path:
    """Return the file of a store that was killed and whose log is gone."""
    folder = copy(original, tmp_path / "image")
    (folder / LOG).unlink()
    use_mark.mark_of(folder / FILE_NAME).touch()
    return folder / FILE_NAME


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("agent_ends", ["killed", "in order"])
async def test_a_log_that_another_program_has_written_back_and_removed_is_no_loss(
    tmp_path: Path, agent_ends: str
) -> None:
    live = tmp_path / "live"
    async with make_store(live) as store:
        for number in range(3):
            await accept(store, event(number))
        folder = crash_image(live, tmp_path / "killed")
        shutil.copy(live / f"{FILE_NAME}.open", folder)
        shell = sqlite3.connect((folder if agent_ends == "killed" else live) / FILE_NAME)
        shell.execute("BEGIN")
        shell.execute("SELECT count(*) FROM events").fetchone()
    shell.rollback()
    shell.close()
    folder = folder if agent_ends == "killed" else live
    assert not (folder / LOG).exists()
    for life in range(2):
        async with make_store(folder) as store:
            await accept(store, event(10 + life))
            assert not any(b"gateway.gap" in one.tail for one in stored_events(store))


@pytest.mark.guarantee(7)
async def test_a_missing_log_is_said_though_the_agent_is_killed_before_it_is_on_disk(
    without_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        """Ends an opening in the middle, like a kill."""

    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(gaps, "insert", kill)
        with pytest.raises(KilledError):
            async with make_store(without_log.parent):
                pass
    without_log.with_name(LOG).touch()  # as after a kill
    assert (await survivors(without_log.parent)).gap_events == 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("beside", ["log", "mark", "both"])
async def test_a_missing_file_is_no_new_store_where_its_log_or_its_mark_is_there(
    original: Original, tmp_path: Path, beside: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy(original, tmp_path / "image")
    path = folder / FILE_NAME
    path.unlink()
    if beside != "log":
        use_mark.mark_of(path).touch()
    if beside == "mark":
        (folder / LOG).unlink()
    with pytest.raises(StoreError, match="missing"):
        database.open_for_reading(path)
    found = await survivors(folder)
    assert found.gap_events == 1
    assert "missing" in caplog.text
    if beside != "mark":
        in_log = {event.position for event in original.events if event.position >= original.commits[-6]}
        assert in_log <= found.new.keys()
        check(original, found)


@pytest.mark.guarantee(7)
def test_a_mark_that_the_disk_cannot_read_counts_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    path.touch()
    swap.suspect(path, "a reason")
    UseMark(path, "boot-1").note(1, None)
    assert use_mark.noted(path) == LastCommit(1, "boot-1")
    monkeypatch.setattr(Path, "read_text", refusing(errno.EIO))
    assert swap.suspicion(path)
    assert use_mark.lacks_log(path)
    use_mark.note_lost_log(path)
    assert use_mark.noted(path) is None


async def test_a_link_in_place_of_the_file_is_refused_with_what_to_do(original: Original, tmp_path: Path) -> None:
    moved, folder = copy(original, tmp_path / "moved"), tmp_path / "state"
    folder.mkdir()
    (folder / FILE_NAME).symlink_to(moved / FILE_NAME)
    with pytest.raises(StoreError, match=r"a symbolic link; move its folder, and set gateway\.state_dir"):
        async with make_store(folder):
            pass
    check(original, await survivors(moved))
