"""The SQL of what commits make known: fingerprints, proofs, and the copies that were recognised."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct

from agent.store.facts import DUPLICATES_FORGOTTEN
from agent.store.schema.checksum import checksum, verified
from agent.store.schema.database import Reads
from agent.store.schema.tables import Row, read_fact, write_fact

REPEATS_MAX = 20
"""Of the copies that a row counts, how many are noted one by one, the latest."""
_REPEAT = Struct("<qq")
_PROOF = Struct("<16si")
"""A proof and the position of its event, from the commit's first on; below zero where a resend has healed a gap."""
_COLUMNS = "first_position, service, packed, proofs, duplicates, repeats, checksum"


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A copy that was recognised, and when, in milliseconds since 1970 UTC."""

    received: int
    position: int
    """Of the event that it repeats."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies that were recognised: how many, and the latest few."""

    count: int = 0
    latest: Sequence[Duplicate] = ()


NO_COPIES = Copies()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What one commit made known."""

    first_position: int
    service: int
    fingerprints: bytes
    proofs: tuple[tuple[bytes, int], ...]
    """Each proof with the position of its first event."""
    copies: Copies = NO_COPIES


def insert_fingerprints(
    connection: sqlite3.Connection,
    first_position: int,
    service: int,
    fingerprints: Iterable[bytes],
    proofs: Mapping[bytes, int],
    copies: Copies = NO_COPIES,
) -> None:
    """Append what one commit makes known; `proofs` gives each its first event's position."""
    packed_proofs = b"".join(_PROOF.pack(proof, position - first_position) for proof, position in proofs.items())
    row = (first_position, service, b"".join(fingerprints), packed_proofs, copies.count, _pack_repeats(copies.latest))
    connection.execute(
        f"INSERT INTO fingerprints ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (*row, checksum("fingerprints", row)),
    )


def restore_fingerprints(
    connection: sqlite3.Connection, first_position: int, service: int, fingerprints: Iterable[bytes]
) -> None:
    """Append fingerprints that a salvage has found again to the proofs and copies that their commit's row still has."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM fingerprints WHERE first_position = ?", (first_position,))
    kept = next(_remembered(rows), Remembered(first_position, service, b"", ()))
    connection.execute("DELETE FROM fingerprints WHERE first_position = ?", (first_position,))
    insert_fingerprints(connection, first_position, kept.service, fingerprints, dict(kept.proofs), kept.copies)


def count_copies(connection: sqlite3.Connection, copies: Copies) -> None:
    """Add copies to the latest row's, whose page is most likely written anyway."""
    if copies == NO_COPIES:
        return
    rows = connection.execute(f"SELECT {_COLUMNS} FROM fingerprints ORDER BY first_position DESC LIMIT 1")
    for *known, counted, repeats in verified("fingerprints", rows):
        latest = (*read_repeats(repeats), *copies.latest)[-REPEATS_MAX:]
        changed = (counted + copies.count, _pack_repeats(latest))
        connection.execute(
            "UPDATE fingerprints SET duplicates = ?, repeats = ?, checksum = ? WHERE first_position = ?",
            (*changed, checksum("fingerprints", (*known, *changed)), known[0]),
        )
        return
    _count_forgotten(connection, copies.count)


def load_fingerprints(connection: Reads) -> Iterator[Remembered]:
    """Read what the commits made known, in order."""
    yield from _remembered(connection.execute(f"SELECT {_COLUMNS} FROM fingerprints ORDER BY first_position"))


def rows_above(connection: Reads, position: int, limit: int) -> list[Remembered]:
    """Read the next rows whose first position is above this one."""
    return list(
        _remembered(
            connection.execute(
                f"SELECT {_COLUMNS} FROM fingerprints WHERE first_position > ? ORDER BY first_position LIMIT ?",
                (position, limit),
            )
        )
    )


def clear_rows(connection: sqlite3.Connection, rows: Sequence[Remembered], proven_from: int) -> None:
    """Delete rows whose fingerprints are sealed; of those that still tell of copies or proofs, the fingerprints alone.

    A proof counts where its commit's service time is `proven_from` or later.
    """
    copies = 0
    for row in rows:
        position = row.first_position
        if row.copies.latest or (row.proofs and row.service >= proven_from):
            if row.fingerprints:
                connection.execute("DELETE FROM fingerprints WHERE first_position = ?", (position,))
                insert_fingerprints(connection, position, row.service, (), dict(row.proofs), row.copies)
        else:
            copies += row.copies.count
            connection.execute("DELETE FROM fingerprints WHERE first_position = ?", (position,))
    if copies:
        _count_forgotten(connection, copies)


def _remembered(rows: Iterable[Row]) -> Iterator[Remembered]:
    for first_position, service, packed, proofs, duplicates, repeats in verified("fingerprints", rows):
        copies = Copies(duplicates, read_repeats(repeats)) if duplicates else NO_COPIES
        yield Remembered(first_position, service, packed, read_proofs(first_position, proofs), copies)


def fingerprints_between(connection: Reads, first: int, last: int) -> list[Row]:
    """Read the rows that hold the fingerprints of the positions from first to last."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM fingerprints"
        " WHERE first_position <= ? AND first_position >="
        " coalesce((SELECT max(first_position) FROM fingerprints WHERE first_position <= ?), 0)",
        (last, first),
    )
    return list(verified("fingerprints", rows))


def latest_duplicates(connection: Reads, limit: int) -> list[Duplicate]:
    """Read the latest copies that were recognised, in order; of each commit only the latest few are known."""
    found: list[Duplicate] = []
    rows = connection.execute("SELECT repeats FROM fingerprints WHERE length(repeats) ORDER BY first_position DESC")
    for (repeats,) in rows:
        found[:0] = read_repeats(repeats)
        if len(found) >= limit:
            break
    return found[len(found) - min(limit, len(found)) :]


def read_repeats(repeats: bytes) -> list[Duplicate]:
    """Read packed copies."""
    return [Duplicate(*repeat) for repeat in _REPEAT.iter_unpack(repeats)]


def read_proofs(first_position: int, proofs: bytes) -> tuple[tuple[bytes, int], ...]:
    """Read packed proofs: each with the position of its first event."""
    return tuple((proof, first_position + place) for proof, place in _PROOF.iter_unpack(proofs))


def delete_fingerprints(connection: sqlite3.Connection, up_to: int) -> None:
    """Forget the rows up to this first position; the copies that they counted stay counted."""
    count = connection.execute(
        "SELECT sum(duplicates) FROM fingerprints WHERE first_position <= ?", (up_to,)
    ).fetchone()[0]
    _count_forgotten(connection, count or 0)
    connection.execute("DELETE FROM fingerprints WHERE first_position <= ?", (up_to,))


def count_duplicates(connection: Reads) -> int:
    """Count the copies recognised in all the store's life, as far as commits have carried the count."""
    counted: int = connection.execute("SELECT coalesce(sum(duplicates), 0) FROM fingerprints").fetchone()[0]
    return counted + int(read_fact(connection, DUPLICATES_FORGOTTEN) or 0)


def _count_forgotten(connection: sqlite3.Connection, copies: int) -> None:
    before = int(read_fact(connection, DUPLICATES_FORGOTTEN) or 0)
    write_fact(connection, DUPLICATES_FORGOTTEN, str(before + copies))


def _pack_repeats(copies: Sequence[Duplicate]) -> bytes:
    return b"".join(_REPEAT.pack(copy.received, copy.position) for copy in copies)
