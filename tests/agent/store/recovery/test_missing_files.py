"""A missing file or a missing log: what was in it is declared as lost, whichever program opens the store first."""

import errno
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from agent.store.errors import StoreError
from agent.store.files import swap, use_mark
from agent.store.files.use_mark import LastCommit, UseMark
from agent.store.layout import FILE_NAME
from agent.store.schema import database, gaps
from tests.agent.store.recovery.damaged import EXTRA, Original, check, copy, event, survivors
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, stored_events

LOG = f"{FILE_NAME}-wal"


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
    tmp_path: Path, clock: HandClock, agent_ends: str
) -> None:
    live = tmp_path / "live"
    async with make_store(live, clock) as store:
        for number in range(3):
            await accept(store, clock, event(number))
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
        async with make_store(folder, clock) as store:
            await accept(store, clock, event(10 + life))
            assert not any(b"gateway.gap" in one.tail for one in stored_events(store))


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("boot", ["boot-1", "an earlier boot, of which the latest writes may be missing"])
async def test_a_log_that_is_gone_with_the_latest_events_is_a_loss(
    original: Original, tmp_path: Path, boot: str
) -> None:
    folder = copy(original, tmp_path / "image")
    (folder / LOG).unlink()
    UseMark(folder / FILE_NAME, boot).note(original.events[-1].position if boot == "boot-1" else 1, None)
    async with make_store(folder, HandClock(boot_name="boot-1")) as store:
        await accept(store, HandClock(), event(EXTRA))
        assert sum(b"gateway.gap" in one.tail for one in stored_events(store)) == 1


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
            async with make_store(without_log.parent, HandClock()):
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
    def fail(*_: object, **__: object) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = tmp_path / FILE_NAME
    path.touch()
    swap.suspect(path, "a reason")
    UseMark(path, "boot-1").note(1, None)
    assert use_mark.noted(path) == LastCommit(1, "boot-1")
    monkeypatch.setattr(Path, "read_text", fail)
    assert swap.suspicion(path)
    assert use_mark.lacks_log(path)
    use_mark.note_lost_log(path)
    assert use_mark.noted(path) is None


async def test_a_link_in_place_of_the_file_is_refused_with_what_to_do(original: Original, tmp_path: Path) -> None:
    moved, folder = copy(original, tmp_path / "moved"), tmp_path / "state"
    folder.mkdir()
    (folder / FILE_NAME).symlink_to(moved / FILE_NAME)
    with pytest.raises(StoreError, match=r"a symbolic link; move its folder, and set gateway\.state_dir"):
        async with make_store(folder, HandClock()):
            pass
    check(original, await survivors(moved))
