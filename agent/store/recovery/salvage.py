"""Salvage: what can be read of a damaged file goes into a new one, and what cannot is given up in so many words.

Pages are looked through one by one, without SQLite, which gives up at the first wrong one. Every row and every event
shows by its checksum that it is what was written. Where a page has several versions, the newest whole row counts of
those that SQLite would read; what its log holds besides fills holes only.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.store.errors import StoreError
from agent.store.files import sqlite_cells
from agent.store.files.sqlite_pages import Pages
from agent.store.fingerprints import segments
from agent.store.format.packing import PackedEvent, pack, unpack_readable
from agent.store.ranges import Ranges
from agent.store.recovery.salvage_fingerprints import complete_fingerprints
from agent.store.schema import database, gaps, tables
from agent.store.schema.checksum import is_whole
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import Opening
from contract.record import read_started

log = logging.getLogger(__name__)

EVENTS_MAX = 1 << 20
"""More than any commit holds."""
_EPOCH_BYTES = 8


@dataclass(frozen=True, slots=True)
class Found:
    """What a salvage has brought over."""

    events: int
    lost: int


def salvage(damaged: Path, new: Path, reason: str) -> Found:
    """Fill a new file from a damaged one; its gaps are declared by the service that opens it."""
    with closing(database.open_for_service(new)) as connection:
        # Nobody relies on this file before it is complete and flushed: no log, which would take the room twice.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        with closing(Pages(damaged)) as pages:
            kept = _Salvage(connection, pages).run()
        _copy_through_sqlite(damaged, connection)
        complete_fingerprints(connection)
        _complete_epochs(connection)
        lost = _give_up(connection, kept, reason)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    return Found(sum(last - first + 1 for first, last in kept), lost)


class _Salvage:
    """One look through all pages."""

    def __init__(self, connection: sqlite3.Connection, pages: Pages) -> None:
        self._connection = connection
        self._pages = pages
        self._kept = Ranges()
        self._processed = Ranges()

    def run(self) -> Ranges:
        """Write what is whole; return the positions whose events were found."""
        for versions, fetch in self._pages.looks():
            for number, page in versions:
                self._take_page(sqlite_cells.rows(number, page, fetch))
        tables.replace_processed(self._connection, self._processed)
        return self._kept

    def _take_page(self, rows: Iterator[tables.Row]) -> None:
        for row in rows:
            if len(row) == 3 and isinstance(row[2], bytes):
                self._take_events(row)
            if len(row) == 3 and is_whole("processed", row):
                self._processed.add(row[0], row[1])  # it only ever grows: older rows are right, too
            for table, columns in _TABLES.items():
                if len(row) == columns and is_whole(table, row):
                    self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * columns)})", row)

    def _take_events(self, row: tables.Row) -> None:
        first, count, packed = row
        if not (isinstance(count, int) and 0 < count <= EVENTS_MAX and 0 < first < 1 << 62):
            return
        if (self._kept.end_of(first) or 0) >= first + count - 1:
            return
        run: list[PackedEvent] = []
        for event in unpack_readable(first, count, packed):
            known = self._kept.end_of(event.position) is not None
            if run and (known or event.position != run[-1].position + 1):
                self._write(run)
                run = []
            if not known:
                run.append(event)
        if run:
            self._write(run)

    def _write(self, run: list[PackedEvent]) -> None:
        tables.insert_events(self._connection, run[0].position, [pack(event) for event in run])
        self._kept.add(run[0].position, run[-1].position)


_TABLES = {
    "epochs": 8,
    "facts": 3,
    "fingerprints": 7,
    "forgotten": 3,
    "gaps": 6,
    "sealed": 5,
    "segments": 7,
}
"""Tables whose rows count by themselves, with their columns."""


def _copy_through_sqlite(damaged: Path, connection: sqlite3.Connection) -> None:
    """Take what counts only in its newest state, as far as SQLite can still read it.

    A batch that is lost with it is new again: it is sent once more, and loses nothing.
    """
    try:
        with closing(database.open_as_it_is(damaged)) as old:
            for batch in tables.load_batches(old):
                tables.insert_batch(connection, batch)
            rejected = old.execute("SELECT number, received, device, via, reason, raw FROM rejected").fetchall()
            connection.executemany("INSERT OR IGNORE INTO rejected VALUES (?, ?, ?, ?, ?, ?)", rejected)
    except (sqlite3.Error, StoreError) as error:
        log.warning("store=salvage skipped=%r effect=%r", str(error), "what Kafka has without a receipt is sent again")


def _complete_epochs(connection: sqlite3.Connection) -> None:
    """Restore the labels of events whose epoch's row is lost: by its first event or the next epoch's, else new ones."""
    known = {first: opening.epoch for first, opening in tables.load_openings(connection)}
    for first, name in _epochs_told(connection):
        if first > 0 and first not in known and name not in known.values():
            known[first] = name
            tables.insert_epoch(connection, first, Opening(name, "", 0, 0, trusted=False, service=0))
    if tables.last_position(connection) and min(known, default=2) > 1:
        name = secrets.token_hex(_EPOCH_BYTES)
        tables.insert_epoch(connection, 1, Opening(name, "", 0, 0, trusted=False, service=0))
        log.warning("store=salvage epoch=lost from_position=1 labelled=%s", name)


def _epochs_told(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the epochs that events tell of, each with its first position."""
    for _, events in _commits(connection):
        for event in events:
            if started := read_started(event.tail):
                yield event.position, started.epoch
                if started.previous:
                    yield event.position - started.previous.sequence, started.previous.epoch


def _give_up(connection: sqlite3.Connection, kept: Ranges, reason: str) -> int:
    """Remember as gaps all positions of which nothing is known, and be done with them; return how many those are."""
    processed = Ranges(tables.load_processed(connection))
    covered = Ranges([*kept, *processed])
    for batch in tables.load_batches(connection):
        covered.add(batch.first, batch.last)
    for gap in gaps.load(connection):
        if gap.count:
            covered.add(gap.first, gap.last)
            segments.forget(connection, gap.first, gap.last)  # its own row may be lost
    end = tables.last_position(connection)
    holes = list(covered.holes(1, end))
    for first, last in holes:
        processed.add(first, last)
        segments.forget(connection, first, last)
    tables.replace_processed(connection, processed)
    gaps.insert(connection, *(Gap(first, last, reason) for first, last in holes), Gap(end + 1, end, reason))
    return sum(last - first + 1 for first, last in holes)


def _commits(connection: sqlite3.Connection) -> Iterator[tuple[int, list[PackedEvent]]]:
    for first, count, packed in connection.execute("SELECT first_position, count, packed FROM events ORDER BY 1"):
        yield first, list(unpack_readable(first, count, packed))
