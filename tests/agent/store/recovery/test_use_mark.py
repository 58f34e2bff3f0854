"""The position that `events.db.open` records at each commit: acked events that are missing are declared."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.store.event_store import EventStore
from agent.store.files import use_mark
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES
from contract.event import Event
from tests.agent.store.faults.test_log_taken_away import LOG, ids, what_a_kill_leaves
from tests.agent.store.stores import HandClock, accept, make_store, stored_events, write_back

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


async def loses_log_silently(killed: Path, clock: HandClock) -> bool:
    """Whether a killed store without its log has neither its last event nor a gap for it."""
    (killed / LOG).unlink()
    async with make_store(killed, clock) as store:
        await accept(store, clock, Event("d", id=100))
        return not declares_loss(store) and EVENTS[-1].id not in ids(store)


@pytest.mark.guarantee(7)
async def test_the_last_position_is_noted_though_no_file_can_be_opened(tmp_path: Path, clock: HandClock) -> None:
    live = tmp_path / "live"
    async with make_store(live, clock) as store:
        await accept(store, clock, *EVENTS[:-1])
        write_back(store)
        with no_free_descriptor():
            assert (await accept(store, clock, EVENTS[-1])).accepted == 1
        noted = use_mark.noted(live / FILE_NAME)
        assert noted is not None
        assert noted.end == stored_events(store)[-1].position
        killed = what_a_kill_leaves(live, tmp_path / "killed")
    assert not await loses_log_silently(killed, clock)


@pytest.mark.guarantee(7)
async def test_a_mark_that_cannot_be_written_says_nothing_rather_than_an_older_position(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    live = tmp_path / "live"
    async with make_store(live, clock) as store:
        await accept(store, clock, *EVENTS[:-1])
        write_back(store)
        with monkeypatch.context() as patch:
            patch.setattr(use_mark, "os", SimpleNamespace(**{**vars(os), "pwrite": no_room}))
            assert (await accept(store, clock, EVENTS[-1])).accepted == 1
        killed = what_a_kill_leaves(live, tmp_path / "killed")
        await accept(store, clock, Event("d", id=101))
        assert use_mark.noted(live / FILE_NAME) is not None
    assert not await loses_log_silently(killed, clock)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("how", ["emptied", "cut", "damaged at its last commit", "of an earlier moment"])
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
async def test_a_log_that_has_lost_its_end_after_a_kill_is_a_loss(
    tmp_path: Path, clock: HandClock, how: str, boot: str
) -> None:
    live = tmp_path / "live"
    async with make_store(live, clock) as store:
        for event in EVENTS[:-1]:
            await accept(store, clock, event)
        earlier = (live / LOG).read_bytes()
        await accept(store, clock, EVENTS[-1])
        killed = what_a_kill_leaves(live, tmp_path / "killed")
    whole = (killed / LOG).read_bytes()
    frame = LOG_FRAME_BYTES
    left = {
        "emptied": b"",
        "cut": whole[:-frame],
        "damaged at its last commit": whole[:-frame] + bytes(frame),
        "of an earlier moment": earlier,
    }
    (killed / LOG).write_bytes(left[how])
    clock.boot_name = boot
    async with make_store(killed, clock) as store:
        assert (await accept(store, clock, EVENTS[-1])).accepted == 1, "what was lost is new again"
        assert declares_loss(store)
    async with make_store(killed, clock) as store:
        await accept(store, clock, Event("d", id=100))
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1, "declared once"


@pytest.mark.guarantee(7)
async def test_a_kill_without_any_loss_declares_none(tmp_path: Path, clock: HandClock) -> None:
    folder = tmp_path / "0"
    for life in range(4):
        async with make_store(folder, clock) as store:
            assert (await accept(store, clock, *EVENTS[: 2 * life + 1])).accepted == (2 if life else 1)
            store.outbox.give_up(1, "set by the test") if life == 1 else None
            clock.boot_name = f"boot-{life % 2}"
            killed = what_a_kill_leaves(folder, tmp_path / str(life + 1))
        folder = killed
    async with make_store(folder, clock) as store:
        assert sum(b"gateway.gap" in event.tail for event in stored_events(store)) == 1


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("is_killed", [False, True])
async def test_of_an_older_copy_of_the_log_nothing_is_read_and_what_the_file_has_stays(
    tmp_path: Path, clock: HandClock, *, is_killed: bool
) -> None:
    folder = tmp_path / "live"
    async with make_store(folder, clock) as store:
        await accept(store, clock, *EVENTS[:3])
        older = (folder / LOG).read_bytes()
        write_back(store)
        await accept(store, clock, *EVENTS[3:6])
        write_back(store)
        await accept(store, clock, *EVENTS[6:])
        if is_killed:
            folder = what_a_kill_leaves(folder, tmp_path / "killed")
            (folder / LOG).write_bytes(older)
        else:
            (folder / LOG).write_bytes(older)
            assert (await accept(store, clock, Event("d", id=100))).refusal
    async with make_store(folder, clock) as store:
        await accept(store, clock, Event("d", id=101))
        assert ids(store) == [*range(6), 101]
        assert declares_loss(store)
    [kept] = folder.glob("*.damaged-*-older-wal")
    assert kept.read_bytes() == older


async def test_an_older_log_is_recognised_though_no_event_was_committed_to_the_present_one(
    tmp_path: Path, clock: HandClock
) -> None:
    folder = tmp_path / "live"
    async with make_store(folder, clock) as store:
        await accept(store, clock, *EVENTS[:3])
        older = (folder / LOG).read_bytes()
    async with make_store(folder, clock) as store:
        store.outbox.set_fact("pinned", "a table")
        killed = what_a_kill_leaves(folder, tmp_path / "killed")
    (killed / LOG).write_bytes(older)
    async with make_store(killed, clock) as store:
        await accept(store, clock, Event("d", id=101))
        assert ids(store) == [*range(3), 101]
    [kept] = killed.glob("*.damaged-*-older-wal")
    assert kept.read_bytes() == older
