"""Salvages a damaged file: copies everything intact into a new one, and records the rest as gaps.

Pages are read one by one, without SQLite, which stops at the first damaged one (decision 12). Checksums show which rows
and events are intact. If a page has several versions, the newest intact row of those that SQLite would read counts;
other frames of the log only fill holes.
"""

import logging
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from agent.store.errors import StoreError
from agent.store.files.sqlite_pages import PageVersions, rows
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.filters import BloomFilter
from agent.store.fingerprints.index import SEGMENT_EVENTS
from agent.store.fingerprints.segments import Origin, SealedFingerprint, Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES, FORGOTTEN, split
from agent.store.format.packing import is_whole, pack, unpack_readable
from agent.store.port import StoredEvent
from agent.store.ranges import Ranges
from agent.store.schema import database, gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import EpochStart
from contract.record import read_started

log = logging.getLogger(__name__)

EVENTS_MAX = 1 << 20
"""More than any commit holds."""
_EPOCH_BYTES = 8


def salvage(damaged: Path, new: Path, reason: str) -> tuple[int, int]:
    """Fill a new file from a damaged one; return how many events were copied, and how many are lost.

    The service that opens it declares the gaps.
    """
    with closing(database.open_for_service(new)) as connection:
        # No one relies on this file before it is complete and flushed: no log, which would take the space twice.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        with closing(PageVersions(damaged)) as pages:
            kept = _Salvage(connection, pages).run()
        _copy_through_sqlite(damaged, connection)
        complete_fingerprints(connection)
        _complete_epochs(connection)
        lost = _give_up(connection, kept, reason)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    return kept.count(), lost


class _Salvage:
    """Copies the whole rows of all pages."""

    def __init__(self, connection: sqlite3.Connection, pages: PageVersions) -> None:
        self._connection = connection
        self._pages = pages
        self._kept = Ranges()
        self._processed = Ranges()

    def run(self) -> Ranges:
        """Copy everything intact; return the positions of the events found."""
        for versions, fetch in self._pages.passes():
            for number, page in versions:
                self._copy_page(rows(number, page, fetch))
        tables.replace_processed(self._connection, self._processed)
        return self._kept

    def _copy_page(self, found: Iterator[tables.Row]) -> None:
        for row in found:
            if len(row) == 3 and isinstance(row[2], bytes):
                self._copy_events(row)
            if len(row) == 3 and is_whole("processed", row):
                self._processed.add(row[0], row[1])  # the ranges only grow: older rows are valid, too
            for table, columns in _TABLES.items():
                if len(row) == columns and is_whole(table, row):
                    self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * columns)})", row)

    def _copy_events(self, row: tables.Row) -> None:
        first, count, packed = row
        if not (isinstance(count, int) and 0 < count <= EVENTS_MAX and 0 < first < 1 << 62):
            return
        if (self._kept.end_of(first) or 0) >= first + count - 1:
            return
        run: list[StoredEvent] = []
        for event in unpack_readable(first, count, packed):
            is_kept = self._kept.end_of(event.position) is not None
            if run and (is_kept or event.position != run[-1].position + 1):
                self._write(run)
                run = []
            if not is_kept:
                run.append(event)
        if run:
            self._write(run)

    def _write(self, run: list[StoredEvent]) -> None:
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
"""Tables whose rows count independently of each other, with the number of their columns."""


def _copy_through_sqlite(damaged: Path, connection: sqlite3.Connection) -> None:
    """Copy the tables of which only the newest state counts, as far as SQLite can read them.

    The events of a batch that is lost here are new again, and sent again.
    """
    try:
        with closing(database.open_as_it_is(damaged)) as old:
            # Else one text that is no longer UTF-8 would end the reading of all rows.
            old.text_factory = lambda text: text.decode(errors="backslashreplace")
            for batch in tables.load_batches(old):
                tables.insert_batch(connection, batch)
            tables.copy_rejects(old, connection)
    except (sqlite3.Error, StoreError) as error:
        log.warning("store=salvage skipped=%r effect=%r", str(error), "what Kafka has without a receipt is sent again")


def _complete_epochs(connection: sqlite3.Connection) -> None:
    """Restore lost rows of epochs from their first event or the next epoch's; else assign a new epoch."""
    names = {first: start.epoch for first, start in tables.load_epochs(connection)}
    for first, name in _declared_epochs(connection):
        if first > 0 and first not in names and name not in names.values():
            names[first] = name
            tables.insert_epoch(connection, first, _unknown_start(name))
    if tables.last_position(connection) and min(names, default=2) > 1:
        name = secrets.token_hex(_EPOCH_BYTES)
        tables.insert_epoch(connection, 1, _unknown_start(name))
        log.warning("store=salvage epoch=lost from_position=1 labelled=%s", name)


def _unknown_start(epoch: str) -> EpochStart:
    return EpochStart(epoch, "", 0, 0, trusted=False, service_ms=0)


def _declared_epochs(connection: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    """Yield the epochs that events name, each with its first position."""
    for first, count, packed in tables.commits_between(connection):
        for event in unpack_readable(first, count, packed):
            if started := read_started(event.tail):
                yield event.position, started.epoch
                if started.previous:
                    yield event.position - started.previous.sequence, started.previous.epoch


def _give_up(connection: sqlite3.Connection, kept: Ranges, reason: str) -> int:
    """Record all positions of unknown events as gaps; return their number."""
    processed = Ranges(tables.load_processed(connection))
    covered = Ranges([*kept, *processed])
    for batch in tables.load_batches(connection):
        covered.add(batch.first, batch.last)
    for gap in gaps.load(connection):
        if gap.count:
            covered.add(gap.first, gap.last)
            segments.forget(connection, gap.first, gap.last)  # its own row of `forgotten` may be lost
    end = tables.last_position(connection)
    holes = list(covered.holes(1, end))
    for first, last in holes:
        processed.add(first, last)
        segments.forget(connection, first, last)
    tables.replace_processed(connection, processed)
    gaps.insert(connection, *(Gap(first, last, reason) for first, last in holes), Gap(end + 1, end, reason))
    return Ranges(holes).count()


def complete_fingerprints(connection: sqlite3.Connection) -> None:
    """Restore the fingerprints of salvaged events whose own rows are lost."""
    covered = _complete_segments(connection)
    service_ms = max((segment.service_ms for segment, _ in segments.load_segments(connection)), default=0)
    for row in fingerprint_rows.load_rows(connection):
        length = len(row.fingerprints) // FINGERPRINT_BYTES
        if length:
            covered.add(row.first_position, row.first_position + length - 1)
        service_ms = max(service_ms, row.service_ms)
    for commit in tables.commits_between(connection):
        run: list[StoredEvent] = []
        for event in (*unpack_readable(*commit), None):
            if event is not None and covered.end_of(event.position) is None:
                run.append(event)
            elif run:
                found = [lost.fingerprint for lost in run]
                fingerprint_rows.restore_fingerprints(connection, run[0].position, service_ms, found)
                run = []


def _complete_segments(connection: sqlite3.Connection) -> Ranges:
    """Rebuild segments of which rows are lost; return the positions that segments cover.

    The entries that a segment has lost are in the kept events, or in rows that are not cleared yet, or are lost.
    """
    whole = {segment.number: segment for segment, _ in segments.load_segments(connection)}
    covered = Ranges()
    for number in sorted({*whole, *segments.numbers(connection)}):
        segment = whole.get(number)
        entries = {entry.position: entry for entry in segments.entries(connection, number)}
        if segment is None or segment.count != len(entries):
            segment = _rebuild(connection, number, segment, entries)
        if segment is not None:
            covered.add(segment.first, segment.last)
    return covered


def _rebuild(
    connection: sqlite3.Connection, number: int, segment: Segment | None, entries: dict[int, SealedFingerprint]
) -> Segment | None:
    first = min(entries, default=0) if segment is None else segment.first
    last = max(entries, default=0) if segment is None else segment.last
    latest_ms = max((entry.service_ms for entry in entries.values()), default=0)
    service_ms = latest_ms if segment is None else segment.service_ms
    for row in fingerprint_rows.rows_between(connection, first, last):
        for position, fingerprint in enumerate(split(row.fingerprints), row.first_position):
            if first <= position <= last and fingerprint != FORGOTTEN:
                entries.setdefault(position, SealedFingerprint(fingerprint, position, row.service_ms))
    for commit in tables.commits_between(connection, tables.commit_start(connection, first), last):
        for event in unpack_readable(*commit):
            if first <= event.position <= last:
                entries.setdefault(event.position, SealedFingerprint(event.fingerprint, event.position, service_ms))
    segments.delete_segment(connection, number)
    segments.delete_entries(connection, number)
    if not entries:
        return None
    # An event that was given up may have been stored again: its later position counts.
    latest = {entries[position].fingerprint: entries[position] for position in sorted(entries)}
    origin = Origin(min(entries), min(entry.service_ms for entry in entries.values()))
    found = sorted(
        segments.pack_entry(origin, entry.fingerprint, entry.position, entry.service_ms) for entry in latest.values()
    )
    bloom = BloomFilter(SEGMENT_EVENTS)
    bloom.add(found)
    made = Segment(number, first, last, service_ms, len(found))
    segments.insert_sealed(connection, number, origin, found)
    segments.insert_segment(connection, made, bloom.content())
    return made
