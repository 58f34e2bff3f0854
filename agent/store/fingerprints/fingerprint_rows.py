"""The SQL of the table `fingerprints`: fingerprints, retransmission keys, and the duplicates that were recognised."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from agent.store.facts import DUPLICATES_FORGOTTEN
from agent.store.format.packing import checksum, typed, verified
from agent.store.schema.database import Reads
from agent.store.schema.tables import Row, read_count, write_fact

REPEATS_MAX: Final = 20
"""How many of the duplicates that a row counts it lists one by one, the latest."""
_DUPLICATE: Final = Struct("<qq")
_RETRANSMISSION_KEY: Final = Struct("<16si")
"""A key and the position of its event, from the commit's first on; below zero where a resend has filled a gap."""
_COLUMNS: Final = "first_position, service_ms, packed, retransmission_keys, duplicates, latest_duplicates, checksum"
_SELECT: Final = f"SELECT {_COLUMNS} FROM fingerprints"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A duplicate that was recognised, and when, in milliseconds since 1970 UTC."""

    received: int
    position: int
    """Of the event that it repeats."""


@dataclass(frozen=True, slots=True)
class DuplicateTotals:
    """Duplicates that were recognised: how many, and the latest few."""

    count: int = 0
    latest: Sequence[Duplicate] = ()


NO_DUPLICATES: Final = DuplicateTotals()


@dataclass(frozen=True, slots=True)
class FingerprintRow:
    """The stored fingerprints of one commit."""

    first_position: int
    service_ms: int
    fingerprints: bytes
    retransmission_keys: tuple[tuple[bytes, int], ...]
    """Each with the position of its first event."""
    duplicates: DuplicateTotals = NO_DUPLICATES


def insert_fingerprints(
    connection: sqlite3.Connection,
    first_position: int,
    service_ms: int,
    fingerprints: Iterable[bytes],
    retransmission_keys: Mapping[bytes, int],
    duplicates: DuplicateTotals = NO_DUPLICATES,
) -> None:
    """Append the row of one commit; `retransmission_keys` maps each to its first event's position."""
    keys = b"".join(_RETRANSMISSION_KEY.pack(key, place - first_position) for key, place in retransmission_keys.items())
    row = (first_position, service_ms, b"".join(fingerprints), keys, duplicates.count, _pack(duplicates.latest))
    connection.execute(
        f"INSERT INTO fingerprints ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, checksum("fingerprints", row)),
    )


def restore_fingerprints(
    connection: sqlite3.Connection, first_position: int, service_ms: int, fingerprints: Iterable[bytes]
) -> None:
    """Write salvaged fingerprints beside the keys and duplicates that their row still has."""
    rows = connection.execute(f"{_SELECT} WHERE first_position = ?", (first_position,))
    kept = next(_read_rows(rows), FingerprintRow(first_position, service_ms, b"", ()))
    _delete_row(connection, first_position)
    keys = dict(kept.retransmission_keys)
    insert_fingerprints(connection, first_position, kept.service_ms, fingerprints, keys, kept.duplicates)


def add_duplicates(connection: sqlite3.Connection, found: DuplicateTotals) -> None:
    """Add duplicates to the latest row, whose page is most likely written anyway."""
    rows = connection.execute(f"{_SELECT} ORDER BY first_position DESC LIMIT 1")
    for *unchanged, count, packed in verified("fingerprints", rows):
        latest = (*_unpack(packed), *found.latest)[-REPEATS_MAX:]
        changed = (count + found.count, _pack(latest))
        connection.execute(
            "UPDATE fingerprints SET duplicates = ?, latest_duplicates = ?, checksum = ? WHERE first_position = ?",
            (*changed, checksum("fingerprints", (*unchanged, *changed)), unchanged[0]),
        )
        return
    _add_forgotten(connection, found.count)


def load_rows(connection: Reads) -> Iterator[FingerprintRow]:
    """Yield all rows, in order."""
    yield from _read_rows(connection.execute(f"{_SELECT} ORDER BY first_position"))


def rows_above(connection: Reads, position: int, limit: int) -> list[FingerprintRow]:
    """Return the next rows whose first position is above this one."""
    rows = connection.execute(f"{_SELECT} WHERE first_position > ? ORDER BY first_position LIMIT ?", (position, limit))
    return list(_read_rows(rows))


def rows_between(connection: Reads, first: int, last: int) -> list[FingerprintRow]:
    """Return the rows that hold the fingerprints of the positions from first to last."""
    start = "coalesce((SELECT max(first_position) FROM fingerprints WHERE first_position <= ?), 0)"
    rows = connection.execute(f"{_SELECT} WHERE first_position <= ? AND first_position >= {start}", (last, first))
    return list(_read_rows(rows))


def latest_by(connection: Reads, service_ms: int) -> list[tuple[int, int]]:
    """Return service time and first position of the latest row that was committed by a service time, as a list."""
    rows = connection.execute(
        "SELECT service_ms, first_position FROM fingerprints WHERE service_ms <= ?"
        " ORDER BY first_position DESC LIMIT 1",
        (service_ms,),
    )
    return rows.fetchall()


def clear_rows(connection: sqlite3.Connection, rows: Sequence[FingerprintRow], keys_from_ms: int) -> None:
    """Delete rows of sealed fingerprints, but keep listed duplicates and valid keys.

    A retransmission key counts where its commit's service time is `keys_from_ms` or later.
    """
    forgotten = 0
    for row in rows:
        position = row.first_position
        if row.duplicates.latest or (row.retransmission_keys and row.service_ms >= keys_from_ms):
            if row.fingerprints:
                _delete_row(connection, position)
                keys = dict(row.retransmission_keys)
                insert_fingerprints(connection, position, row.service_ms, (), keys, row.duplicates)
        else:
            forgotten += row.duplicates.count
            _delete_row(connection, position)
    if forgotten:
        _add_forgotten(connection, forgotten)


def delete_rows(connection: sqlite3.Connection, up_to: int) -> None:
    """Forget the rows up to this first position; the duplicates that they counted stay counted."""
    count = connection.execute(
        "SELECT sum(duplicates) FROM fingerprints WHERE first_position <= ?", (up_to,)
    ).fetchone()[0]
    _add_forgotten(connection, count or 0)
    connection.execute("DELETE FROM fingerprints WHERE first_position <= ?", (up_to,))


def latest_duplicates(connection: Reads, limit: int) -> list[Duplicate]:
    """Return the latest duplicates, in order; of each commit only the latest few are listed."""
    found: list[Duplicate] = []
    rows = connection.execute(f"{_SELECT} WHERE length(latest_duplicates) ORDER BY first_position DESC")
    for *_, packed in verified("fingerprints", rows):
        found[:0] = _unpack(packed)
        if len(found) >= limit:
            break
    return found[len(found) - min(limit, len(found)) :]


def count_duplicates(connection: Reads) -> int:
    """Return the committed count of duplicates since the store was created."""
    counted = connection.execute("SELECT coalesce(sum(duplicates), 0) FROM fingerprints").fetchone()[0]
    return typed(counted, int, "number of duplicates") + read_count(connection, DUPLICATES_FORGOTTEN)


def _read_rows(rows: Iterable[Row]) -> Iterator[FingerprintRow]:
    for first_position, service_ms, packed, packed_keys, count, latest in verified("fingerprints", rows):
        duplicates = DuplicateTotals(count, _unpack(latest)) if count else NO_DUPLICATES
        keys = tuple((key, first_position + place) for key, place in _RETRANSMISSION_KEY.iter_unpack(packed_keys))
        yield FingerprintRow(first_position, service_ms, packed, keys, duplicates)


def _delete_row(connection: sqlite3.Connection, first_position: int) -> None:
    connection.execute("DELETE FROM fingerprints WHERE first_position = ?", (first_position,))


def _add_forgotten(connection: sqlite3.Connection, duplicates: int) -> None:
    before = read_count(connection, DUPLICATES_FORGOTTEN)
    write_fact(connection, DUPLICATES_FORGOTTEN, str(before + duplicates))


def _pack(duplicates: Sequence[Duplicate]) -> bytes:
    return b"".join([_DUPLICATE.pack(duplicate.received, duplicate.position) for duplicate in duplicates])


def _unpack(packed: bytes) -> list[Duplicate]:
    return [Duplicate(*duplicate) for duplicate in _DUPLICATE.iter_unpack(packed)]
