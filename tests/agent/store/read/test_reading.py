"""The readers' view beside the service, without writes: the events, their states, and what was purged."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from agent.store.files.sqlite_pages import LogFrames
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.port import Batch
from agent.store.read import kept
from agent.store.read.documents import commit_times, read_duplicates, read_events, read_only
from agent.store.read.kept import (
    DamagedEvents,
    KeptEvent,
    Selection,
    read_all,
    read_kept,
    select_between,
    select_latest,
)
from agent.store.recovery import open as opening
from agent.store.recovery.verify import verify
from agent.store.schema import database, tables
from agent.store.schema.database import snapshot
from contract.event import Event
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    accept,
    change,
    make_store,
    mark_processed,
    process_all,
    stored_events,
    write_back,
)
from tests.agent.store.test_event_store import DEVICE, ONE, TWO


async def test_a_reader_sees_one_moment_while_the_service_commits_and_cannot_write(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, Event("d", id=1))
        file = (tmp_path / FILE_NAME).read_bytes()
        with read_only(tmp_path / FILE_NAME) as reader, snapshot(reader):
            before = [row["first_position"] for row in reader.query("SELECT first_position FROM events")]
            assert (await accept(store, Event("d", id=2))).accepted == 1
            assert [row["first_position"] for row in reader.table("events").rows_where()] == before
            assert tables.last_position(reader) == before[-1] + 1
        with read_only(tmp_path / FILE_NAME) as reader:
            assert reader.table("events").count == len(before) + 1
            assert reader.table("epochs").count == 1  # readers start none
            with pytest.raises(sqlite3.OperationalError, match="read"):
                reader.table("facts").insert({"name": "x", "value": "y", "checksum": 0})
        assert (tmp_path / FILE_NAME).read_bytes() == file


def _kept(folder: Path) -> Iterator[object]:
    with read_only(folder / FILE_NAME) as store:
        yield from read_kept(store, range(1, tables.last_position(store) + 1))


@pytest.mark.guarantee(3)
@pytest.mark.parametrize(
    "read",
    [
        lambda folder: read_events(folder, GATEWAY, 1_000_000),
        lambda folder: read_duplicates(folder, 1_000_000),
        _kept,
    ],
    ids=["events", "duplicates", "replay"],
)
async def test_a_command_whose_output_nobody_takes_holds_nothing(
    tmp_path: Path, read: Callable[[Path], Iterator[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PAGE_POSITIONS", 10)
    events = [Event("d", id=number) for number in range(100)]
    async with make_store(tmp_path) as store:
        await accept(store, *events)
        await accept(store, *events)
        await accept(store, Event("d", id="carries the duplicates along"))
        command = read(tmp_path)
        taken = list(islice(command, 5))
        with closing(database.open_for_service(tmp_path / FILE_NAME)) as other:
            assert database.empty_log(other, wait_ms=0)
        assert (await accept(store, Event("d", id="later"))).accepted == 1
        assert len(taken) == 5
        assert len(list(command)) >= 15


@pytest.mark.guarantee(3)
async def test_what_is_purged_before_its_page_is_read_is_left_out_and_nothing_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PAGE_POSITIONS", 10)
    async with make_store(tmp_path) as store:
        for number in range(50):
            await accept(store, Event("d", id=number))
        with read_only(tmp_path / FILE_NAME) as reader:
            pages = read_all(reader, range(1, 52))
            found = list(islice(pages, 12))
            store._writer.call(lambda: store._committer.removal.purge(30))
            found += pages
    positions = [entry.event.position for entry in found if isinstance(entry, KeptEvent)]
    assert positions == [*range(1, 21), *range(31, 52)]


async def test_a_row_whose_position_is_damaged_delays_no_search(tmp_path: Path) -> None:
    """Two events are 8,000,000 pages apart."""
    wanted = Event("d", id="wanted")
    async with make_store(tmp_path) as store:
        await accept(store, wanted)
        await accept(store, Event("other", id=1))
        await accept(store, Event("d", id="moved"))
        end = stored_events(store)[-1].position
    far = end | 1 << 33
    moved = [f"UPDATE {table} SET first_position = ? WHERE first_position = ?" for table in ("events", "fingerprints")]
    change(tmp_path, *moved, values=(far, end))
    with read_only(tmp_path / FILE_NAME) as reader:
        assert tables.last_position(reader) == far
        first, damaged = select_between(reader, 0, far, Selection("d"))
        assert isinstance(first, KeptEvent)
        assert isinstance(damaged, DamagedEvents)
        assert list(select_latest(reader, far, 9, Selection("d"))) == [first, damaged]
        assert list(commit_times(reader, first.event.fingerprint)) == [first.event.position]


async def test_a_device_is_found_in_any_spelling_of_its_letters(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, Event("Küche", id=1))
        with read_only(tmp_path / FILE_NAME) as reader:
            assert len(list(select_latest(reader, 9, 9, Selection("Ku\u0308che")))) == 1


async def test_a_page_ends_with_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "PAGE_BYTES", 1000)
    async with make_store(tmp_path) as store:
        await accept(store, *(Event("d", id=number, data={"text": "x" * 400}) for number in range(20)))
        with read_only(tmp_path / FILE_NAME) as reader:
            pages = read_all(reader, range(1, 22))
            next(pages)
            store._writer.call(lambda: store._committer.removal.purge(21))
            assert len(list(pages)) < 5


@pytest.mark.guarantee(7)
async def test_a_file_that_shrinks_between_two_looks_is_no_damage(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / FILE_NAME
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        for number in range(20):
            await accept(store, Event("d", id=number, data={"text": Random(number).randbytes(40_000).hex()}))
        process_all(store)
        clock.pass_seconds(100)
        store.trouble()
        store._writer.call(lambda: database.empty_log(store._transactions.connection.get()))
        await accept(store, Event("d", id=1_000))
        pages = [0]

        def shrink() -> None:
            with store._transactions.begin() as sql:
                database.shrink(sql, 50)

        class SlowLog(LogFrames):
            """Is read, and then the agent returns space."""

            def __init__(self, log_of: Path) -> None:
                super().__init__(log_of)
                if len(pages) > 1:
                    return
                before = path.stat().st_size
                store._writer.call(shrink)
                write_back(store)
                pages.append((before - path.stat().st_size) // PAGE_BYTES)

        with monkeypatch.context() as patch:
            patch.setattr(opening, "LogFrames", SlowLog)
            assert not verify(path).findings
        assert max(pages) == 50


async def test_damage_is_found_at_every_look(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    async with make_store(tmp_path) as store:
        await accept(store, Event("d", id=1))
    with path.open("r+b") as file:
        file.truncate(3 * PAGE_BYTES)
    assert "cut off" in verify(path).findings[0].text


@pytest.mark.guarantee(4)
async def test_a_commit_is_purged_only_as_a_whole(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, keep_processed_seconds=0) as store:
        await accept(store, *(Event(DEVICE, id=number) for number in range(5)))
        mark_processed(store, 1, 3)
        clock.pass_seconds(60)
        await accept(store, TWO)
        await accept(store, Event(DEVICE, id=9))
        assert [event.position for event in stored_events(store)] == [4, 5, 6, 7, 8]


async def test_a_stale_batch_is_not_marked_processed(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, ONE, TWO)
        store.outbox.mark_processed([Batch(1, 3, "never forwarded")])
        assert len(stored_events(store)) == 3
