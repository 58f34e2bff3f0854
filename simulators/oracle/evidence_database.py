"""The evidence: ledger, rows and records side by side, in a database that spills to disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contract.event import DEVICE_RESERVED_PREFIX, Event, Value
from simulators.evidence.row import Row
from simulators.ledger import Acked, Begun, Ended, GivenUp, Happened, LedgerError, Line, Refused, Reported, Sent
from simulators.oracle.statement import digest, form, statement

AHEAD = "receipts ahead of the table: "
"""Begins the line of a ledger that notes receipts for what the table did not have; their number follows."""
RESTORED = "restored"
"""What a ledger notes of a gateway whose card has been replaced by an older copy."""
GAP = "gateway.gap"
"""The type of the event in which a gateway declares what it has given up."""
_FIRST_RECORDS = """
    INSERT INTO row SELECT statement, said, device, gateway, epoch, sequence, partition, "offset", fingerprint, at, 0
    FROM record WHERE rowid IN (SELECT min(rowid) FROM record GROUP BY epoch, sequence, statement)
"""
_BATCH = 10_000
_CACHE_KIBIBYTES = 65_536
_SCHEMA = Path(__file__).with_name("evidence_database.sql")


@dataclass(slots=True)
class _Open:
    """An event whose end has not been read yet."""

    event: Event
    requests: int = 0
    transmissions: int = 0
    first_line: int | None = None
    first_at: int | None = None
    across: int = 0


@dataclass(slots=True)
class EvidenceDatabase:
    """Holds what is known; memory holds the open events and a cache of 64 MiB, however much that is."""

    run: dict[str, Any] = field(default_factory=dict)
    """What the ledger says is tested."""
    ended: bool = False
    """Whether the ledger says that the run came to its end."""
    acked: int = 0
    refused: int = 0
    given_up: int = 0
    unacked: int = 0
    """Events that were still open when the ledger ended."""
    premature: int = 0
    has_records: bool = False
    """Whether the topic was read."""
    cut: tuple[int, ...] = ()
    """The partitions whose beginning retention has deleted."""
    connection: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect("", isolation_level=None))

    def __enter__(self) -> Self:
        # A file of its own that nobody else sees, and that is gone with the connection: nothing has to be safe.
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
        self.connection.execute("PRAGMA journal_mode = OFF")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.executescript(_SCHEMA.read_text())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def add_ledger(self, lines: Iterable[Line]) -> None:
        """Read the ledger: one entry for each event, made when its end is known."""
        self._insert("event", 13, self._entries(lines))

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Read the rows of the table."""
        self._insert("row", 11, map(_row_entry, rows))

    def add_records(self, records: Iterable[Row]) -> None:
        """Read the records of the topic; of the gateways' own only the declared gaps are kept."""
        self.has_records = True
        gaps: list[tuple[object, ...]] = []
        self._insert("record", 11, map(_record_entry, _of_sensors(records, gaps)))
        self._insert("gap", 3, gaps)

    def add_topic_as_rows(self, records: Iterable[Row], cut: Collection[int] = ()) -> None:
        """Read a topic in place of a table: what a label says the first time is its row, the rest are repeats.

        The partitions of `cut` have lost their beginning: whether a record was there nobody knows.
        """
        self.cut = tuple(sorted(cut))
        self.connection.executemany("INSERT INTO cut VALUES (?)", ((partition,) for partition in self.cut))
        self.add_records(records)
        self.connection.execute(_FIRST_RECORDS)

    def count(self, query: str) -> int:
        """Return the one number that a query asks for."""
        (number,) = self.connection.execute(query).fetchone()
        return int(number or 0)

    @property
    def devices(self) -> str:
        """How the names of the run's devices begin; empty where nobody else's events can be there."""
        return str(self.run.get("devices", ""))

    def said(self, mark: int) -> bytes:
        """Return what was said of an event."""
        (said,) = self.connection.execute("SELECT said FROM event WHERE mark = ?", (mark,)).fetchone()
        return bytes(said)

    def has_variant(self, statement: bytes) -> bool:
        """Whether an event was sent with another time under this statement."""
        found = self.connection.execute("SELECT 1 FROM variant WHERE statement = ? LIMIT 1", (statement,))
        return found.fetchone() is not None

    def first_times(self) -> list[int]:
        """Return the moments at which events arrived in Kafka for the first time, in milliseconds since 1970 UTC."""
        query = "SELECT min(at) FROM record GROUP BY epoch, sequence"
        return [moment for (moment,) in self.connection.execute(query)]

    def arrivals(self) -> list[tuple[int, int]]:
        """Return, for each second, how many events arrived in Kafka for the first time; moments in milliseconds."""
        query = "SELECT 1000 * (first / 1000), count(*) FROM ({}) GROUP BY first / 1000"
        first = "SELECT min(at) AS first FROM record GROUP BY epoch, sequence"
        return list(self.connection.execute(query.format(first)))

    def _entries(self, lines: Iterable[Line]) -> Iterator[tuple[object, ...]]:
        opened: dict[int, _Open] = {}
        variants: list[tuple[int, bytes, int]] = []
        try:
            for number, line in enumerate(lines, start=1):
                if isinstance(line, Reported):
                    opened[line.mark] = _Open(line.event)
                elif isinstance(line, Sent):
                    _note_sent(opened[line.mark], line, number, variants)
                elif isinstance(line, Acked | Refused | GivenUp):
                    yield self._entry(line.mark, opened.pop(line.mark), line, number)
                elif isinstance(line, Happened):
                    self._note_fault(line, opened)
                elif isinstance(line, Begun):
                    self.run = dict(line.run)
                elif isinstance(line, Ended):
                    self.ended = True
        except KeyError as error:
            raise LedgerError(f"line {number}: the event {error} was never told, or has ended before") from error
        self.unacked = len(opened)
        for mark, event in opened.items():
            yield self._entry(mark, event, None, 0)
        self.connection.executemany("INSERT INTO variant VALUES (?, ?, ?)", variants)

    def _note_fault(self, line: Happened, opened: Mapping[int, _Open]) -> None:
        if line.what == RESTORED:
            for event in opened.values():
                event.across += event.first_line is not None
        elif line.what.startswith(AHEAD):
            self.premature += int(line.what.removeprefix(AHEAD))

    def _entry(self, mark: int, event: _Open, end: Line | None, number: int) -> tuple[object, ...]:
        acked = isinstance(end, Acked)
        self.acked += acked
        self.refused += isinstance(end, Refused)
        self.given_up += isinstance(end, GivenUp)
        said = statement(event.event)
        return (
            mark,
            digest(said),
            said,
            form(event.event),
            event.event.device,
            event.event.id is None and event.event.time is None,
            event.requests,
            event.transmissions,
            event.first_line,
            event.first_at,
            number if acked else None,
            None if end is None else type(end).__name__,
            event.across,
        )

    def _insert(self, table: str, columns: int, entries: Iterable[Sequence[object]]) -> None:
        sql = f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})"
        entries = iter(entries)
        while batch := list(islice(entries, _BATCH)):
            self.connection.execute("BEGIN")
            self.connection.executemany(sql, batch)
            self.connection.execute("COMMIT")


def _note_sent(event: _Open, line: Sent, number: int, variants: list[tuple[int, bytes, int]]) -> None:
    event.transmissions += 1
    event.requests += not line.again
    if event.first_line is None:
        event.first_line, event.first_at = number, line.at
    if line.time is not None and not line.again:
        variants.append((line.mark, digest(statement(event.event, line.time)), form(event.event)))


def _of_sensors(records: Iterable[Row], gaps: list[tuple[object, ...]]) -> Iterator[Row]:
    """Yield the records of sensors, and add the labels that gateways have given up to `gaps`."""
    for record in records:
        if not record.device.startswith(DEVICE_RESERVED_PREFIX):
            yield record
        elif record.type == GAP:
            gaps += _declared(record.data)


def _declared(data: Value) -> list[tuple[object, ...]]:
    labels = data.get("labels") if isinstance(data, Mapping) else None
    return [tuple(label) for label in labels if isinstance(label, list)] if isinstance(labels, list) else []


def _row_entry(row: Row) -> tuple[object, ...]:
    said = statement(row)
    return (digest(said), said, row.device, *_place(row), 0)


def _record_entry(row: Row) -> tuple[object, ...]:
    said = statement(row)
    return (digest(said), said, form(row), row.device, *_place(row))


def _place(row: Row) -> tuple[object, ...]:
    return (row.gateway, row.epoch, row.sequence, row.partition, row.offset, row.fingerprint, row.at)
