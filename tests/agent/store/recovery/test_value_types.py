"""Values of another type than was written: SQLite returns what the file holds, whatever type its column has."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.errors import DamagedStoreError
from agent.store.files.use_mark import UseMark
from agent.store.fingerprints import fingerprint_rows
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.read.events import Epochs
from agent.store.recovery.verify import verify
from agent.store.schema import database, tables
from agent.store.schema.database import Reads
from tests.agent.store.recovery.damaged import Original, check, copy, event, survivors
from tests.agent.store.stores import HandClock, accept, make_store, submit

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
