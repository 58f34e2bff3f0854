"""What a salvage knows of fingerprints: segments made whole again, and those of events whose own rows are lost."""

from __future__ import annotations

import sqlite3

from agent.store.fingerprints import rows as known_rows
from agent.store.fingerprints import segments
from agent.store.fingerprints.filters import Bloom
from agent.store.fingerprints.index import SEGMENT_EVENTS
from agent.store.fingerprints.segments import Entry, Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES, FORGOTTEN, split
from agent.store.format.packing import PackedEvent, unpack_readable
from agent.store.ranges import Ranges


def complete_fingerprints(connection: sqlite3.Connection) -> None:
    """Make the salvaged events' fingerprints known where their own rows are lost."""
    covered = _complete_segments(connection)
    service = max((segment.service for segment, _ in segments.load_segments(connection)), default=0)
    for remembered in known_rows.load_fingerprints(connection):
        length = len(remembered.fingerprints) // FINGERPRINT_BYTES
        if length:
            covered.add(remembered.first_position, remembered.first_position + length - 1)
        service = max(service, remembered.service)
    rows = connection.execute("SELECT first_position, count, packed FROM events ORDER BY first_position")
    for row in rows:
        run: list[PackedEvent] = []
        for event in (*unpack_readable(*row), None):
            if event is not None and covered.end_of(event.position) is None:
                run.append(event)
            elif run:
                known = [piece.fingerprint for piece in run]
                known_rows.restore_fingerprints(connection, run[0].position, service, known)
                run = []


def _complete_segments(connection: sqlite3.Connection) -> Ranges:
    """Make segments again of which rows are lost; return the positions that segments cover.

    What a segment has lost is in the kept events, or in the log while that is being cleared, or is forgotten.
    """
    whole = {segment.number: segment for segment, _ in segments.load_segments(connection)}
    covered = Ranges()
    for number in sorted({*whole, *segments.numbers(connection)}):
        segment = whole.get(number)
        entries = {entry.position: entry for entry in segments.entries(connection, number)}
        if segment is None or segment.count != len(entries):
            segment = _make_again(connection, number, segment, entries)
        if segment is not None:
            covered.add(segment.first, segment.last)
    return covered


def _make_again(
    connection: sqlite3.Connection, number: int, segment: Segment | None, entries: dict[int, Entry]
) -> Segment | None:
    first = min(entries, default=0) if segment is None else segment.first
    last = max(entries, default=0) if segment is None else segment.last
    service = max((entry.service for entry in entries.values()), default=0) if segment is None else segment.service
    for row in known_rows.fingerprints_between(connection, first, last):
        for position, fingerprint in enumerate(split(row[2]), row[0]):
            if first <= position <= last and fingerprint != FORGOTTEN:
                entries.setdefault(position, Entry(fingerprint, position, row[1]))
    rows = connection.execute(
        "SELECT first_position, count, packed FROM events WHERE first_position + count > ? AND first_position <= ?",
        (first, last),
    )
    for row in rows:
        for event in unpack_readable(*row):
            if first <= event.position <= last:
                entries.setdefault(event.position, Entry(event.fingerprint, event.position, service))
    segments.delete_segment(connection, number)
    if not entries:
        return None
    found = segments.sorted_entries(entries.values())
    bloom = Bloom(SEGMENT_EVENTS)
    bloom.add(entry.fingerprint for entry in found)
    made = Segment(number, first, last, service, len(found))
    segments.insert_sealed(connection, number, found)
    segments.insert_segment(connection, made, bloom.content())
    return made
