"""The store's SQL, one function for each thing that is written or loaded."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent.store.format.compression import compress
from agent.store.port import Batch, Offsets, Reject
from agent.store.schema.checksum import checksum, verified
from agent.store.schema.database import Reads

REJECTED_MAX = 1_000
"""How many rejected events are kept, the latest."""


Row = tuple[Any, ...]
"""A row of a table without its checksum."""


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of the store for service: what its epoch's row says."""

    epoch: str
    boot: str
    since_boot: int
    wall: int
    trusted: bool
    service: int


def insert_epoch(connection: sqlite3.Connection, first_position: int, opening: Opening) -> None:
    """Begin an epoch."""
    row = (
        first_position,
        opening.epoch,
        opening.boot,
        opening.since_boot,
        opening.wall,
        int(opening.trusted),
        opening.service,
    )
    connection.execute(
        "INSERT INTO epochs (first_position, epoch, boot, since_boot, wall, trusted, service, checksum)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, checksum("epochs", row)),
    )


def load_openings(connection: Reads) -> list[tuple[int, Opening]]:
    """Read all epochs with their first positions, in order."""
    rows = connection.execute(
        "SELECT first_position, epoch, boot, since_boot, wall, trusted, service, checksum"
        " FROM epochs ORDER BY first_position"
    )
    return [opening_of(row) for row in verified("epochs", rows)]


def opening_of(row: Row) -> tuple[int, Opening]:
    """Read a verified row of `epochs`."""
    return row[0], Opening(row[1], row[2], row[3], row[4], bool(row[5]), row[6])


def insert_events(connection: sqlite3.Connection, first_position: int, packed: list[bytes]) -> None:
    """Append the events of one commit."""
    connection.execute(
        "INSERT INTO events (first_position, count, packed) VALUES (?, ?, ?)",
        (first_position, len(packed), compress(packed)),
    )


def insert_rejects(connection: sqlite3.Connection, rejects: list[Reject]) -> None:
    """Keep the latest rejected events."""
    connection.executemany(
        "INSERT INTO rejected (received, device, via, reason, raw) VALUES (?, ?, ?, ?, ?)",
        [(reject.received, reject.device, reject.via, reject.reason, reject.raw) for reject in rejects],
    )
    connection.execute("DELETE FROM rejected WHERE number <= (SELECT max(number) FROM rejected) - ?", (REJECTED_MAX,))


def insert_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Remember that the broker has a batch."""
    partitions = json.dumps({number: _written(offsets) for number, offsets in batch.partitions.items()})
    row = (batch.first, batch.last, batch.topic_id, partitions)
    connection.execute(
        "INSERT OR REPLACE INTO batches (first, last, topic_id, partitions, checksum) VALUES (?, ?, ?, ?, ?)",
        (*row, checksum("batches", row)),
    )


def delete_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Forget a batch: its events are new again, or processed."""
    connection.execute("DELETE FROM batches WHERE first = ?", (batch.first,))


def load_batches(connection: Reads) -> list[Batch]:
    """Read the batches that wait for their receipt, in order."""
    rows = connection.execute("SELECT first, last, topic_id, partitions, checksum FROM batches ORDER BY first")
    return [
        Batch(first, last, topic_id, _offsets(partitions))
        for first, last, topic_id, partitions in verified("batches", rows)
    ]


def replace_processed(connection: sqlite3.Connection, ranges: Iterable[tuple[int, int]]) -> None:
    """Write the ranges that the table has; they are few."""
    connection.execute("DELETE FROM processed")
    connection.executemany(
        "INSERT INTO processed (first, last, checksum) VALUES (?, ?, ?)",
        [(*row, checksum("processed", row)) for row in ranges],
    )


def load_processed(connection: Reads) -> list[tuple[int, int]]:
    """Read the ranges that the table has."""
    rows = connection.execute("SELECT first, last, checksum FROM processed ORDER BY first")
    return [(first, last) for first, last in verified("processed", rows)]


def first_event(connection: Reads) -> int | None:
    """Return the first position whose event is still kept."""
    position: int | None = connection.execute("SELECT min(first_position) FROM events").fetchone()[0]
    return position


def last_position(connection: Reads) -> int:
    """Return the highest position that was ever given to an event; what is purged was processed."""
    position: int = connection.execute(
        "SELECT max((SELECT coalesce(max(last), 0) FROM processed), (SELECT coalesce(max(last), 0) FROM batches),"
        " (SELECT coalesce(max(last), 0) FROM gaps), (SELECT coalesce(max(first_position), 0) FROM epochs),"
        " coalesce((SELECT first_position + count - 1 FROM events ORDER BY first_position DESC LIMIT 1), 0),"
        " coalesce((SELECT first_position + length(packed) / 16 - 1 FROM fingerprints"
        " ORDER BY first_position DESC LIMIT 1), 0), (SELECT coalesce(max(last), 0) FROM segments))"
    ).fetchone()[0]
    return position


def delete_events(connection: sqlite3.Connection, up_to: int) -> None:
    """Delete the commits all of whose events lie at or below this position."""
    row = connection.execute(
        "SELECT first_position, count FROM events WHERE first_position <= ? ORDER BY first_position DESC LIMIT 1",
        (up_to,),
    ).fetchone()
    if row is not None:
        first, count = row
        connection.execute(
            "DELETE FROM events WHERE first_position < ?", (first + count if first + count - 1 <= up_to else first,)
        )


def discard_from(connection: sqlite3.Connection, first_position: int) -> None:
    """Delete a commit whose outcome was unknown: nobody was acked for it.

    Its bytes are overwritten, so that no salvage takes them for those of a later event at the same position.
    """
    connection.execute("PRAGMA secure_delete = ON")
    try:
        connection.execute("DELETE FROM events WHERE first_position >= ?", (first_position,))
        connection.execute("DELETE FROM fingerprints WHERE first_position >= ?", (first_position,))
        connection.execute("DELETE FROM epochs WHERE first_position >= ?", (first_position,))
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def read_fact(connection: Reads, name: str) -> str | None:
    """Read a fact."""
    for row in verified("facts", connection.execute("SELECT name, value, checksum FROM facts WHERE name = ?", (name,))):
        value: str = row[1]
        return value
    return None


def load_facts(connection: Reads) -> dict[str, str]:
    """Read all facts."""
    rows = connection.execute("SELECT name, value, checksum FROM facts ORDER BY name")
    return dict(verified("facts", rows))


def write_fact(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Write a fact."""
    connection.execute(
        "INSERT OR REPLACE INTO facts (name, value, checksum) VALUES (?, ?, ?)",
        (name, value, checksum("facts", (name, value))),
    )


def count_rejects(connection: Reads) -> int:
    """Count the rejected events in all the store's life."""
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM rejected").fetchone()[0]
    return number


def _written(offsets: Offsets) -> list[int]:
    known = [] if offsets.leader_epoch is None else [offsets.leader_epoch]
    return [offsets.lowest, offsets.highest, *known]


def _offsets(partitions: str) -> dict[int, Offsets]:
    return {int(number): Offsets(*offsets) for number, offsets in json.loads(partitions).items()}
