"""Missing files, and values of another type: what was lost is declared, whoever opens the store first."""

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.errors import DamagedStoreError, StoreError
from agent.store.files import swap, use_mark
from agent.store.files.use_mark import LastCommit, UseMark
from agent.store.fingerprints import fingerprint_rows
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.read.events import Epochs
from agent.store.recovery.verify import verify
from agent.store.schema import database, gaps, tables
from agent.store.schema.database import Reads
from tests.agent.store.recovery.damaged import EXTRA, Original, check, copy, event, survivors
from tests.agent.store.stores import HandClock, accept, crash_image, make_store, stored_events, submit

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


LAST = "first_position = (SELECT max(first_position) FROM events)"


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount > 0


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batches SET last = 'twenty'",
        "UPDATE batches SET last = x'00'",
        "UPDATE segments SET last = 1e300",
        f"UPDATE events SET count = 'many' WHERE {LAST}",
        f"UPDATE events SET count = 1.5 WHERE {LAST}",
        f"UPDATE events SET packed = 'text' WHERE {LAST}",
        f"UPDATE events SET packed = 7 WHERE {LAST}",
    ],
)
async def test_a_value_of_another_type_makes_the_opening_salvage(
    original: Original, tmp_path: Path, statement: str
) -> None:
    folder = copy(original, tmp_path / "image")
    change(folder, statement)
    with closing(UseMark(folder / FILE_NAME, "boot-1")) as mark:
        mark.note(original.events[-1].position, None)
    (folder / f"{FILE_NAME}-wal").touch()
    found = await survivors(folder)
    check(original, found)
    assert found.gap_events


def load_epochs(connection: Reads) -> None:
    Epochs.load(connection).label(1)


def latest_duplicates(connection: Reads) -> None:
    fingerprint_rows.latest_duplicates(connection, 10)


@pytest.mark.guarantee(7)
@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE epochs SET epoch = x'00'", load_epochs),
        ("UPDATE fingerprints SET latest_duplicates = 'text'", latest_duplicates),
        ("UPDATE fingerprints SET latest_duplicates = 7", latest_duplicates),
        ("UPDATE fingerprints SET latest_duplicates = x'01'", latest_duplicates),
        ("UPDATE fingerprints SET duplicates = 1.5", fingerprint_rows.count_duplicates),
        ("UPDATE rejected SET received = 'late'", tables.load_rejects),
        ("UPDATE rejected SET device = x'00'", tables.load_rejects),
        ("UPDATE rejected SET via = x'00'", tables.load_rejects),
        ("UPDATE rejected SET reason = x'00'", tables.load_rejects),
        ("UPDATE rejected SET raw = 7", tables.load_rejects),
        ("UPDATE rejected SET raw = 'text'", tables.load_rejects),
    ],
)
async def test_a_value_of_another_type_is_reported_as_damage(
    tmp_path: Path, statement: str, read: Callable[[Reads], object], clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, event(1))
        await submit(store, clock, event(1), event(2), rejects=(Reject("d", "coap", 1, "no map", b"raw"),))
        store.flush()
    with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
        read(connection)
    change(tmp_path, statement)
    with (
        closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection,
        pytest.raises(DamagedStoreError),
    ):
        read(connection)
    assert any(defect.check == "rows" for defect in verify(tmp_path / FILE_NAME).findings)


async def test_a_salvage_leaves_out_rejected_events_of_another_type(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        for number in range(3):
            reject = Reject("d", "coap", 1, f"reason {number}", b"raw")
            await submit(store, clock, event(number), rejects=(reject,))
    change(tmp_path, "UPDATE rejected SET device = x'00' WHERE number = 2")
    (tmp_path / f"{FILE_NAME}.suspect").write_text("set by the test")
    async with make_store(tmp_path, clock):
        pass
    with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
        assert [reject.reason for _, reject in tables.load_rejects(connection)] == ["reason 0", "reason 2"]
