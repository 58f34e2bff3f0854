"""The store's SQL on events, epochs, progress, facts and rejected events: one function for each statement."""

import json
import sqlite3
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from agent.store.errors import DamagedStoreError
from agent.store.format.packing import checksum, compress, typed, verified
from agent.store.port import Batch, Offsets, Reject
from agent.store.schema.database import Reads

REJECTED_MAX = 1_000
_POSITION_MAX = (1 << 63) - 1
_ROW_BYTES = 16
"""What a row of `events` takes beside its packed events."""
_SEARCHED_POSITIONS = 10_000
"""How many positions one statement of a search covers: while it runs, the service cannot restart its log."""
_COMMITS = "SELECT first_position, count, packed FROM events"
_EPOCH_COLUMNS = "first_position, epoch, boot, uptime_ms, wall_ms, trusted, service_ms, checksum"
_REJECTED_COLUMNS = "number, received, device, via, reason, raw"

Row = tuple[Any, ...]
"""A row of a table without its checksum."""
Commit = tuple[int, Any, Any]
"""A row of `events`: first position, count, packed events; where the file is damaged, the two may be of any type."""


@dataclass(frozen=True, slots=True)
class EpochStart:
    """The opening that began an epoch: the content of the epoch's row."""

    epoch: str
    boot: str
    uptime_ms: int
    wall_ms: int
    trusted: bool
    service_ms: int


def insert_epoch(connection: sqlite3.Connection, first_position: int, start: EpochStart) -> None:
    """Begin an epoch."""
    clocks = (start.boot, start.uptime_ms, start.wall_ms, int(start.trusted), start.service_ms)
    row = (first_position, start.epoch, *clocks)
    connection.execute(
        f"INSERT INTO epochs ({_EPOCH_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum("epochs", row))
    )


def load_epochs(connection: Reads) -> list[tuple[int, EpochStart]]:
    """Return all epochs with their first positions, in order."""
    rows = verified("epochs", connection.execute(f"SELECT {_EPOCH_COLUMNS} FROM epochs ORDER BY first_position"))
    return [
        (first, EpochStart(epoch, boot, uptime_ms, wall_ms, bool(trusted), service_ms))
        for first, epoch, boot, uptime_ms, wall_ms, trusted, service_ms in rows
    ]


def load_epoch_names(connection: Reads) -> list[tuple[int, str]]:
    """Return the first position and name of all epochs, in order, their checksums not verified."""
    rows = connection.execute("SELECT first_position, epoch FROM epochs ORDER BY first_position")
    return [(first, typed(name, str, f"epoch at position {first}")) for first, name in rows]


def epoch_of(epochs: Sequence[tuple[int, EpochStart]], position: int) -> EpochStart | None:
    """Return the epoch, of all in their order, that holds a position; None where it precedes all of them."""
    following = bisect_right(epochs, position, key=itemgetter(0))
    return epochs[following - 1][1] if following else None


def insert_events(connection: sqlite3.Connection, first_position: int, packed: list[bytes]) -> None:
    """Append the events of one commit."""
    connection.execute(
        "INSERT INTO events (first_position, count, packed) VALUES (?, ?, ?)",
        (first_position, len(packed), compress(packed)),
    )


def commits_between(
    connection: Reads, first: int = 0, last: int = _POSITION_MAX, commits_max: int = -1
) -> sqlite3.Cursor:
    """Return the commits whose first position is between two positions, both included, in order."""
    where = "WHERE first_position BETWEEN ? AND ? ORDER BY first_position LIMIT ?"
    return connection.execute(f"{_COMMITS} {where}", (first, last, commits_max))


def commit_start(connection: Reads, position: int) -> int:
    """Return the first position of the commit at or before a position; else the position itself."""
    start: int | None = connection.execute(
        "SELECT max(first_position) FROM events WHERE first_position <= ?", (position,)
    ).fetchone()[0]
    return position if start is None else start


def commit_end(connection: Reads, position: int) -> int:
    """Return the last position, up to the given one, that a commit holds; 0 where there is none.

    A commit whose count is damaged is taken to hold all positions that follow it.
    """
    row = connection.execute(
        "SELECT first_position, count FROM events WHERE first_position <= ? ORDER BY first_position DESC LIMIT 1",
        (position,),
    ).fetchone()
    if row is None:
        return 0
    first, count = row
    return min(position, first + count - 1) if isinstance(count, int) and count > 0 else position


def latest_commits(connection: Reads) -> sqlite3.Cursor:
    """Return the commits that are kept, the last one first."""
    return connection.execute(f"{_COMMITS} ORDER BY first_position DESC")


def commit_sizes(connection: Reads) -> Generator[tuple[int, int, int]]:
    """Yield first position, last position and size in bytes of the kept commits, in order."""
    sizes = connection.execute("SELECT first_position, count, length(packed) FROM events ORDER BY first_position")
    with closing(sizes):
        for first, count, size in sizes:
            subject = f"commit at position {first}"
            yield first, first + max(typed(count, int, subject), 1) - 1, typed(size, int, subject)


def search(connection: Reads, table: str, columns: str, piece: bytes) -> Iterator[Row]:
    """Yield the rows whose `packed` holds some bytes, in short statements of some positions each."""
    query = f"SELECT {columns} FROM {table} WHERE first_position BETWEEN ? AND ? AND instr(packed, ?)"
    following = f"SELECT min(first_position) FROM {table} WHERE first_position >= ?"
    last = connection.execute(f"SELECT max(first_position) FROM {table}").fetchone()[0]
    first: int | None = connection.execute(following, (0,)).fetchone()[0]
    while first is not None and first <= last:
        end = first + _SEARCHED_POSITIONS
        yield from connection.execute(query, (first, end - 1, piece)).fetchall()
        first = connection.execute(following, (end,)).fetchone()[0]  # far on, where a row's position is damaged


def first_event(connection: Reads, after: int = 0) -> int | None:
    """Return the first position of the next kept commit after a position, or None."""
    position: int | None = connection.execute(
        "SELECT min(first_position) FROM events WHERE first_position > ?", (after,)
    ).fetchone()[0]
    return position


def last_position(connection: Reads) -> int:
    """Return the highest position that was ever assigned to an event; purged events were processed."""
    position = connection.execute(
        "SELECT max((SELECT coalesce(max(last), 0) FROM processed), (SELECT coalesce(max(last), 0) FROM batches),"
        " (SELECT coalesce(max(last), 0) FROM gaps), (SELECT coalesce(max(first_position), 0) FROM epochs),"
        " coalesce((SELECT first_position + count - 1 FROM events ORDER BY first_position DESC LIMIT 1), 0),"
        " coalesce((SELECT first_position + length(packed) / 16 - 1 FROM fingerprints"
        " ORDER BY first_position DESC LIMIT 1), 0), (SELECT coalesce(max(last), 0) FROM segments))"
    ).fetchone()[0]
    return typed(position, int, "last position")


def delete_events(connection: sqlite3.Connection, up_to: int, bytes_max: int) -> int:
    """Delete the first commits that end at or below a position: at least one, then up to so many bytes.

    Return the position up to which there is nothing left to delete.
    """
    size, deleted_to, done_to = 0, 0, up_to
    with closing(commit_sizes(connection)) as commits:
        for _, last, length in commits:
            if last > up_to:
                break
            if size and size + length > bytes_max:
                done_to = deleted_to
                break
            size += length + _ROW_BYTES
            deleted_to = last
    connection.execute("DELETE FROM events WHERE first_position <= ?", (deleted_to,))
    return done_to


def discard_from(connection: sqlite3.Connection, first_position: int) -> None:
    """Delete a commit whose outcome was unknown: no event of it was acked.

    Its bytes are overwritten, so that no salvage mistakes them for those of a later event at the same position.
    """
    connection.execute("PRAGMA secure_delete = ON")
    try:
        connection.execute("DELETE FROM events WHERE first_position >= ?", (first_position,))
        connection.execute("DELETE FROM fingerprints WHERE first_position >= ?", (first_position,))
        connection.execute("DELETE FROM epochs WHERE first_position >= ?", (first_position,))
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def insert_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Record that the broker has a batch."""
    partitions = {
        number: [value for value in (offsets.lowest, offsets.highest, offsets.leader_epoch) if value is not None]
        for number, offsets in batch.partitions.items()
    }
    row = (batch.first, batch.last, batch.topic_id, json.dumps(partitions))
    connection.execute(
        "INSERT OR REPLACE INTO batches (first, last, topic_id, partitions, checksum) VALUES (?, ?, ?, ?, ?)",
        (*row, checksum("batches", row)),
    )


def delete_batch(connection: sqlite3.Connection, batch: Batch) -> None:
    """Delete a batch: its events are new again, or processed."""
    connection.execute("DELETE FROM batches WHERE first = ?", (batch.first,))


def load_batches(connection: Reads) -> list[Batch]:
    """Return the batches that wait for their receipt, in order."""
    rows = connection.execute("SELECT first, last, topic_id, partitions, checksum FROM batches ORDER BY first")
    return [
        Batch(
            first, last, topic_id, {int(number): Offsets(*each[:3]) for number, each in json.loads(partitions).items()}
        )
        for first, last, topic_id, partitions in verified("batches", rows)
    ]


def replace_processed(connection: sqlite3.Connection, ranges: Iterable[tuple[int, int]]) -> None:
    """Write the ranges that the table has, in place of all before; they are few."""
    connection.execute("DELETE FROM processed")
    connection.executemany(
        "INSERT INTO processed (first, last, checksum) VALUES (?, ?, ?)",
        [(*row, checksum("processed", row)) for row in ranges],
    )


def load_processed(connection: Reads) -> list[tuple[int, int]]:
    """Return the ranges that the table has."""
    rows = connection.execute("SELECT first, last, checksum FROM processed ORDER BY first")
    return [(first, last) for first, last in verified("processed", rows)]


def write_fact(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Write a fact."""
    connection.execute(
        "INSERT OR REPLACE INTO facts (name, value, checksum) VALUES (?, ?, ?)",
        (name, value, checksum("facts", (name, value))),
    )


def read_fact(connection: Reads, name: str) -> str | None:
    """Return the value of a fact, None where there is none."""
    rows = connection.execute("SELECT name, value, checksum FROM facts WHERE name = ?", (name,))
    return dict(verified("facts", rows)).get(name)


def read_count(connection: Reads, name: str) -> int:
    """Return the value of a fact that counts, 0 where there is none."""
    return int(read_fact(connection, name) or 0)


def load_facts(connection: Reads) -> dict[str, str]:
    """Return all facts."""
    rows = connection.execute("SELECT name, value, checksum FROM facts ORDER BY name")
    return dict(verified("facts", rows))


def insert_rejects(connection: sqlite3.Connection, rejects: list[Reject]) -> None:
    """Keep the latest rejected events."""
    connection.executemany(
        "INSERT INTO rejected (received, device, via, reason, raw) VALUES (?, ?, ?, ?, ?)",
        [(reject.received, reject.device, reject.via, reject.reason, reject.raw) for reject in rejects],
    )
    connection.execute("DELETE FROM rejected WHERE number <= (SELECT max(number) FROM rejected) - ?", (REJECTED_MAX,))


def copy_rejects(source: Reads, connection: sqlite3.Connection) -> None:
    """Copy another store's rejected events, without those with values of a wrong type."""
    for row in source.execute(f"SELECT {_REJECTED_COLUMNS} FROM rejected").fetchall():
        with suppress(DamagedStoreError):
            _reject(*row)
            connection.execute(f"INSERT OR IGNORE INTO rejected ({_REJECTED_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", row)


def load_rejects(connection: Reads) -> list[tuple[int, Reject]]:
    """Return the kept rejected events with their numbers, in order."""
    rows = connection.execute(f"SELECT {_REJECTED_COLUMNS} FROM rejected ORDER BY number").fetchall()
    return [(row[0], _reject(*row)) for row in rows]


def count_rejects(connection: Reads) -> int:
    """Count the rejected events since the store was created."""
    number: int = connection.execute("SELECT coalesce(max(number), 0) FROM rejected").fetchone()[0]
    return number


def _reject(number: int, received: object, device: object, via: object, reason: object, raw: object) -> Reject:
    subject = f"rejected event {number}"
    return Reject(
        typed(device, str, subject),
        typed(via, str, subject),
        typed(received, int, subject),
        typed(reason, str, subject),
        typed(raw, bytes, subject),
    )
