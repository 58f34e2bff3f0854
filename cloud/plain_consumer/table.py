"""The consumer's table: results and offsets in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from psycopg import sql

from cloud.errors import JobError, StopError
from cloud.plain_consumer.values import Entry
from cloud.postgres import columns
from cloud.postgres.connection import connected, durable_transaction, identifier

logger = logging.getLogger(__name__)

_TYPES = {
    "fingerprint": "bytea",
    **dict.fromkeys(("device", "type", "id"), "text"),
    "time": "bigint",
    **dict.fromkeys(("data", "ext"), "text"),
    "kafka_partition": "integer",
    "kafka_offset": "bigint",
}
_COLUMNS = ", ".join(_TYPES)
_FIELDS = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
_TABLE = f"CREATE TABLE IF NOT EXISTS {{table}} ({_FIELDS}, PRIMARY KEY (fingerprint))"
_NEW = f"CREATE TEMPORARY TABLE {{new}} ({_FIELDS}) ON COMMIT DELETE ROWS"
_QUARANTINE = """
    CREATE TABLE IF NOT EXISTS {quarantine} (kafka_partition integer, kafka_offset bigint, reason text, value bytea)
"""
_OFFSETS = """
    CREATE TABLE IF NOT EXISTS {offsets}
    (grp text, topic text, partition integer, next bigint NOT NULL, topic_id text NOT NULL,
     PRIMARY KEY (grp, topic, partition))
"""
# For a member that the group has removed, `was` no longer matches.
_MOVE = """
    INSERT INTO {offsets} AS o VALUES (%(group)s, %(topic)s, %(partition)s, %(next)s, %(topic_id)s)
    ON CONFLICT (grp, topic, partition) DO UPDATE SET next = excluded.next
    WHERE o.next = %(was)s AND o.topic_id = excluded.topic_id
"""
_NEXT = "SELECT partition, next, topic_id FROM {offsets} WHERE grp = %(group)s AND topic = %(topic)s"


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition's offset from `was`, the value that this member has read, to `next`."""

    partition: int
    was: int
    next: int


class StaleError(JobError):
    """Another member has moved the offset; the transaction is rolled back."""


class ConsumerTable:
    """Rows, quarantine and offsets, over one connection."""

    def __init__(self, connection: str, table: str, group: str, topic: str) -> None:
        self._conninfo = connection
        self._of = {"group": group, "topic": topic}
        suffixes = {"table": "", "quarantine": "_quarantine", "offsets": "_offsets", "new": "_new"}
        self._names = {name: identifier(table, suffix) for name, suffix in suffixes.items()}
        self._names["new"] = sql.Identifier("oncegate_new")
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._connection = self._open.enter_context(connected(self._conninfo))
        for statement in (_TABLE, _QUARANTINE, _OFFSETS, _NEW):
            self._connection.execute(self._sql(statement))
        columns.widen(self._connection, self._names["table"], _TYPES)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def next_offsets(self, partitions: Sequence[int], topic_id: str) -> dict[int, int]:
        """Return the table's next offsets; partitions without one are left out.

        Raise StopError where the table has read another topic of this name, since its offsets are of other records.
        """
        found = self._connection.execute(self._sql(_NEXT), self._of).fetchall()
        if others := {was for _partition, _next, was in found} - {topic_id}:
            raise StopError(
                f"topic {self._of['topic']}: the table has read the topic with the id {', '.join(sorted(others))}, "
                f"this one has {topic_id}: it was recreated, and the table's offsets do not apply to it. To read it "
                f"from its beginning, delete the rows of group {self._of['group']} from the table of offsets; events "
                "in the table are not written again"
            )
        return {partition: offset for partition, offset, _ in found if partition in partitions}

    def write(self, entries: Sequence[Entry], moves: Sequence[Move], topic_id: str) -> int:
        """Write entries and moves in one transaction; return the new rows."""
        with durable_transaction(self._connection):
            rows = self._insert(entries)
            logger.info("stage=result rows=%d", rows)
            for move in moves:
                self._move(move, topic_id)
        return rows

    def _insert(self, entries: Sequence[Entry]) -> int:
        good = [entry for entry in entries if entry.reason is None]
        bad = [entry for entry in entries if entry.reason is not None]
        with self._connection.cursor() as cursor:
            with cursor.copy(self._sql("COPY {new} FROM STDIN (FORMAT binary)")) as copy:
                copy.set_types(list(_TYPES.values()))
                for one in good:
                    said = (one.fingerprint, one.device, one.type, one.id, one.time, one.data, one.ext)
                    copy.write_row((*said, one.partition, one.offset))
            for one in bad:
                cursor.execute(
                    self._sql("INSERT INTO {quarantine} VALUES (%s, %s, %s, %s)"),
                    (one.partition, one.offset, one.reason, one.value),
                )
            insert = f"INSERT INTO {{table}} ({_COLUMNS}) SELECT {_COLUMNS} FROM {{new}} ON CONFLICT DO NOTHING"
            return cursor.execute(self._sql(insert)).rowcount

    def _move(self, move: Move, topic_id: str) -> None:
        given = {**self._of, "partition": move.partition, "next": move.next, "was": move.was, "topic_id": topic_id}
        moved = self._connection.execute(self._sql(_MOVE), given)
        if moved.rowcount != 1:
            raise StaleError(f"partition {move.partition}: another member has moved the offset from {move.was}")

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(**self._names)
