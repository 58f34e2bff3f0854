"""Restores fingerprints in a salvage: incomplete segments, and those of events whose own rows are lost."""

from __future__ import annotations

import sqlite3

from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.filters import BloomFilter
from agent.store.fingerprints.index import SEGMENT_EVENTS
from agent.store.fingerprints.segments import Origin, SealedFingerprint, Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES, FORGOTTEN, split
from agent.store.format.packing import PackedEvent, unpack_readable
from agent.store.ranges import Ranges
from agent.store.schema import tables


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
        run: list[PackedEvent] = []
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
