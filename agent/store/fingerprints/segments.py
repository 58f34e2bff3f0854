"""Sealed segments: fingerprints on flash that memory no longer holds, sorted once and dropped whole.

A row of `sealed` holds some 180 entries and can be read by itself, so that a segment's row can be rebuilt. An entry is
the fingerprint, then 3 bytes each for its position and its service time, counted from those of its row.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.store.fingerprints.memtable import MOMENT_MS
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.format.packing import checksum, verified
from agent.store.schema.database import Reads

ENTRIES_PER_ROW = 182
"""As many as fit into one page."""
SEALED_BYTES = 26.2
"""What a sealed fingerprint takes of the file: its entry, and its part of the filter and of the pages."""
SHARE = 0.75
"""How much of the store's bound sealed fingerprints may take: the rest is always for events (decision 78)."""
ROWS_PER_PIECE = 64
"""How many rows of entries are deleted at once; the log grows by as many pages."""
_PART_BYTES = 3
_ENTRY_BYTES = FINGERPRINT_BYTES + 2 * _PART_BYTES
PART_MAX = (1 << 8 * _PART_BYTES) - 1
_PREFIX_BYTES = 5
_NUMBER_SHIFT = 8 * _PREFIX_BYTES
_SEALED = "key, position, service_ms, packed, checksum"
_SEGMENT = "number, first, last, service_ms, count, bloom, checksum"


@dataclass(frozen=True, slots=True)
class SealedFingerprint:
    """One sealed fingerprint."""

    fingerprint: bytes
    position: int
    service_ms: int
    """The service time of its commit, less than twice MOMENT_MS too early."""


@dataclass(frozen=True, slots=True)
class Origin:
    """From where the entries of a row count."""

    position: int
    """At most PART_MAX below the highest position."""
    service_ms: int


@dataclass(frozen=True, slots=True)
class Segment:
    """The contents of a segment's own row."""

    number: int
    first: int
    """Lowest position."""
    last: int
    """Highest position."""
    service_ms: int
    """Of its latest commit; past the retention the segment is dropped."""
    count: int


def insert_sealed(connection: sqlite3.Connection, number: int, origin: Origin, entries: Sequence[bytes]) -> None:
    """Append packed and sorted entries to a segment, all of which sort behind those it has."""
    start = 0
    while start < len(entries):
        end = min(start + ENTRIES_PER_ROW, len(entries))
        # Equal prefixes stay together: the row that begins at or below a prefix has all of it.
        while end < len(entries) and _prefix(entries[end]) == _prefix(entries[end - 1]):
            end += 1
        row = (_key(number, entries[start]), origin.position, origin.service_ms, b"".join(entries[start:end]))
        connection.execute(
            f"INSERT OR REPLACE INTO sealed ({_SEALED}) VALUES (?, ?, ?, ?, ?)", (*row, checksum("sealed", row))
        )
        start = end


def insert_segment(connection: sqlite3.Connection, segment: Segment, bloom: bytes) -> None:
    """Complete a segment, all of whose entries are written: from now on it counts."""
    row = (segment.number, segment.first, segment.last, segment.service_ms, segment.count, bloom)
    connection.execute(
        f"INSERT OR REPLACE INTO segments ({_SEGMENT}) VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, checksum("segments", row))
    )


def load_segments(connection: Reads, above: int = -1) -> Iterator[tuple[Segment, bytes]]:
    """Yield the segments above a number in order, each with its filter."""
    rows = connection.execute(f"SELECT {_SEGMENT} FROM segments WHERE number > ? ORDER BY number", (above,))
    for *fields, bloom in verified("segments", rows):
        yield Segment(*fields), bloom


def find(connection: Reads, number: int, fingerprint: bytes) -> SealedFingerprint | None:
    """Return the entry of a fingerprint in a segment, None where there is none; reads one page."""
    rows = connection.execute(
        f"SELECT {_SEALED} FROM sealed WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
        (number << _NUMBER_SHIFT, _key(number, fingerprint)),
    )
    for _, position, service_ms, packed in verified("sealed", rows):
        at = packed.find(fingerprint)
        while at >= 0 and at % _ENTRY_BYTES:
            at = packed.find(fingerprint, at + 1)
        return None if at < 0 else _entry(packed, at, position, service_ms)
    return None


def entries(connection: Reads, number: int) -> Iterator[SealedFingerprint]:
    """Yield all entries of a segment, sorted."""
    rows = connection.execute(
        f"SELECT {_SEALED} FROM sealed WHERE key BETWEEN ? AND ? ORDER BY key",
        (number << _NUMBER_SHIFT, (number + 1 << _NUMBER_SHIFT) - 1),
    )
    for _, position, service_ms, packed in verified("sealed", rows):
        for at in range(0, len(packed), _ENTRY_BYTES):
            yield _entry(packed, at, position, service_ms)


def numbers(connection: Reads, least: int = 0) -> Iterator[int]:
    """Yield the numbers of the segments, from `least` on, that have entries, complete or not."""
    while True:
        row = connection.execute(
            "SELECT key FROM sealed WHERE key >= ? ORDER BY key LIMIT 1", (least << _NUMBER_SHIFT,)
        ).fetchone()
        if row is None:
            return
        yield row[0] >> _NUMBER_SHIFT
        least = (row[0] >> _NUMBER_SHIFT) + 1


def delete_segment(connection: sqlite3.Connection, number: int) -> None:
    """Delete a segment's own row, so that its entries no longer count."""
    connection.execute("DELETE FROM segments WHERE number = ?", (number,))


def delete_entries(connection: sqlite3.Connection, number: int, rows_max: int = -1) -> None:
    """Delete the first rows of a segment that does not count; all where no number is given."""
    connection.execute(
        "DELETE FROM sealed WHERE key IN (SELECT key FROM sealed WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?)",
        (number << _NUMBER_SHIFT, (number + 1 << _NUMBER_SHIFT) - 1, rows_max),
    )


def forget(connection: sqlite3.Connection, first: int, last: int) -> None:
    """Forget the fingerprints of a range of positions, in all segments; a longer range from there on stays."""
    row = (first, last)
    connection.execute(
        "INSERT INTO forgotten (first, last, checksum) VALUES (?, ?, ?) ON CONFLICT (first) DO UPDATE "
        "SET last = excluded.last, checksum = excluded.checksum WHERE excluded.last > last",
        (*row, checksum("forgotten", row)),
    )


def delete_forgotten(connection: sqlite3.Connection, below: int) -> None:
    """Delete the ranges below a position, where no fingerprint is remembered any more."""
    connection.execute("DELETE FROM forgotten WHERE last < ?", (below,))


def load_forgotten(connection: Reads) -> list[tuple[int, int]]:
    """Return the ranges of positions whose fingerprints are forgotten."""
    rows = connection.execute("SELECT first, last, checksum FROM forgotten ORDER BY first")
    return [(first, last) for first, last in verified("forgotten", rows)]


def pack_entry(origin: Origin, fingerprint: bytes, position: int, service_ms: int) -> bytes:
    """Return an entry as a row holds it; in the order of these bytes entries are sorted."""
    moment = min((service_ms - origin.service_ms) // MOMENT_MS, PART_MAX)
    return fingerprint + (position - origin.position << 8 * _PART_BYTES | moment).to_bytes(2 * _PART_BYTES, "big")


def _entry(packed: bytes, at: int, position: int, service_ms: int) -> SealedFingerprint:
    place = at + FINGERPRINT_BYTES
    moment = place + _PART_BYTES
    return SealedFingerprint(
        packed[at:place],
        position + int.from_bytes(packed[place:moment], "big"),
        service_ms + int.from_bytes(packed[moment : moment + _PART_BYTES], "big") * MOMENT_MS,
    )


def _key(number: int, fingerprint: bytes) -> int:
    return number << _NUMBER_SHIFT | _prefix(fingerprint)


def _prefix(fingerprint: bytes) -> int:
    return int.from_bytes(fingerprint[:_PREFIX_BYTES], "big")
