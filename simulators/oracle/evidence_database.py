"""The evidence database: ledger, rows and records in a temporary SQLite database that spills to disk."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

from contract.event import DEVICE_RESERVED_PREFIX, Event, Value
from simulators.evidence.row import Row
from simulators.ledger import Acked, Begun, Ended, GivenUp, Happened, LedgerError, Line, Refused, Reported, Sent
from simulators.oracle.statement import digest, form, statement

AHEAD = "receipts ahead of the table: "
"""Prefix of the ledger's text about receipts ahead of the table; their number follows."""
RESTORED = "restored"
"""The ledger's text for a gateway whose card was replaced by an older copy."""
GAP = "gateway.gap"
"""The type of the event in which a gateway declares given-up events."""
_FIRST_RECORDS = """
    INSERT INTO row SELECT statement, content, device, gateway, epoch, sequence, partition, "offset", fingerprint, at, 0
    FROM record WHERE rowid IN (SELECT min(rowid) FROM record GROUP BY epoch, sequence, statement)
"""
_BATCH = 10_000
_CACHE_KIBIBYTES = 65_536
_SCHEMA = Path(__file__).with_name("evidence_database.sql")


@dataclass(slots=True)
class _Open:
    """An event whose outcome has not been read yet."""

    event: Event
    requests: int = 0
    transmissions: int = 0
    first_line: int | None = None
    first_at: int | None = None
    across: int = 0


@dataclass(slots=True)
class EvidenceDatabase:
    """All evidence of a run; memory holds only the open events and a cache of 64 MiB."""

    run: dict[str, Any] = field(default_factory=dict)
    """The parameters of the run, from the ledger."""
    ended: bool = False
    """Whether the run finished, according to the ledger."""
    acked: int = 0
    refused: int = 0
    given_up: int = 0
    unacked: int = 0
    """Events that were still open when the ledger ended."""
    premature: int = 0
    has_records: bool = False
    """Whether the topic was read."""
    cut: tuple[int, ...] = ()
    """The partitions whose first records were deleted by retention."""
    connection: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect("", isolation_level=None))

    def __enter__(self) -> Self:
        # A temporary file, deleted with the connection: durability is not needed.
        self.connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
        self.connection.execute("PRAGMA journal_mode = OFF")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.executescript(_SCHEMA.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def add_ledger(self, lines: Iterable[Line]) -> None:
        """Add the ledger: one entry per event, inserted once its outcome is known."""
        self._insert("event", 13, self._entries(lines))

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Add the rows of the table."""
        self._insert("row", 11, (_placed(row, 0) for row in rows))

    def add_records(self, records: Iterable[Row]) -> None:
        """Add the records of the topic; of the gateways' own events only the declared gaps are kept."""
        self.has_records = True
        gaps: list[tuple[object, ...]] = []
        self._insert("record", 11, (_placed(row, form(row)) for row in _of_sensors(records, gaps)))
        self._insert("gap", 3, gaps)

    def add_topic_as_rows(self, records: Iterable[Row], cut: Collection[int] = ()) -> None:
        """Add a topic in place of a table: the first record of each label is its row, the others are repeats.

        Retention has deleted the first records of the partitions in `cut`.
        """
        self.cut = tuple(sorted(cut))
        self.connection.executemany("INSERT INTO cut VALUES (?)", ((partition,) for partition in self.cut))
        self.add_records(records)
        self.connection.execute(_FIRST_RECORDS)

    def count(self, query: str) -> int:
        """Return the single number that a query selects."""
        (number,) = self.connection.execute(query).fetchone()
        return int(number or 0)

    @property
    def devices(self) -> str:
        """The prefix of the run's device names; empty where there are no other events."""
        return str(self.run.get("devices", ""))

    def content(self, mark: int) -> bytes:
        """Return the statement of an event."""
        (content,) = self.connection.execute("SELECT content FROM event WHERE mark = ?", (mark,)).fetchone()
        return bytes(content)

    def has_variant(self, statement: bytes) -> bool:
        """Whether a restamped request of an event has this statement."""
        found = self.connection.execute("SELECT 1 FROM variant WHERE statement = ? LIMIT 1", (statement,))
        return found.fetchone() is not None

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the number of first arrivals in Kafka in each second; times in milliseconds since 1970 UTC."""
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
            raise LedgerError(f"line {number}: the event {error} was never reported, or has ended before") from error
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
        content = statement(event.event)
        return (
            mark,
            digest(content),
            content,
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
    """Yield the records of sensors, and append the labels that gateways declared as given up to `gaps`."""
    for record in records:
        if not record.device.startswith(DEVICE_RESERVED_PREFIX):
            yield record
        elif record.type == GAP:
            gaps += _declared(record.data)


def _declared(data: Value) -> list[tuple[object, ...]]:
    labels = data.get("labels") if isinstance(data, Mapping) else None
    return [tuple(label) for label in labels if isinstance(label, list)] if isinstance(labels, list) else []


def _placed(row: Row, last: int) -> tuple[object, ...]:
    """Return the entry of a row or record; the last column is that in which their tables differ."""
    place = (row.device, row.gateway, row.epoch, row.sequence, row.partition, row.offset, row.fingerprint, row.at)
    return (digest(content := statement(row)), content, *place, last)
