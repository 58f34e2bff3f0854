"""The consumer's tables: those of the job, and beside its owner's row the place of each partition."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from cloud.errors import SinkError, StopError
from cloud.plain_consumer.transform import Made
from cloud.postgres.connection import durable_transaction, identifier
from cloud.postgres.statements import STAGING, Statements
from cloud.postgres.tables import Own, PostgresTables, present_columns, widen
from cloud.table import widening
from cloud.table.sink import Written

_WRITER = "consumer"
OWNER = f'{{"oncegate":"{_WRITER}"}}'
"""The owner's row of a table with places, which a job refuses as it does one of a newer job."""
_STAGING = sql.Identifier("oncegate staging")
"""A name that none of the tables can have: within a transaction it hides them."""
# Under the id of the events' table, so that one made anew has no places.
_CREATE = """
    CREATE TABLE IF NOT EXISTS {places}
    (id text, partition integer, first bigint NOT NULL, next bigint NOT NULL, epoch integer NOT NULL,
     topic_id text NOT NULL, PRIMARY KEY (id, partition))
"""
_BEGIN = """
    INSERT INTO {places} VALUES (%(id)s, %(partition)s, %(first)s, %(next)s, %(epoch)s, %(topic_id)s)
    ON CONFLICT DO NOTHING
"""
# For a member that the group has removed, `was` no longer matches.
_MOVE = """
    UPDATE {places} SET next = %(next)s, epoch = %(epoch)s
    WHERE id = %(id)s AND partition = %(partition)s AND next = %(was)s AND topic_id = %(topic_id)s
"""
# Numbers of microseconds: a table that was restored gives none again that it had given before.
_RENEW_KEYS = """
    SELECT setval(%s, t) FROM {keys}, (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS t) now
    WHERE last_value < t
"""
_DUE = """
    SELECT DISTINCT n.version FROM {new} n JOIN {table} t USING (fingerprint)
    WHERE t.kafka_partition = ANY(%s) ORDER BY n.version
"""
_READ_NEW = """
    SELECT t.* FROM {table} t WHERE t.fingerprint IN (SELECT n.fingerprint FROM {new} n WHERE n.version = %s)
    ORDER BY t.kafka_partition, t.kafka_offset
"""
_READ = "SELECT partition, first, next, epoch, topic_id FROM {places} WHERE id = %s"


@dataclass(frozen=True, slots=True)
class Place:
    """How far the table has read a partition without a gap since `first`, and under which leader epoch."""

    first: int
    next: int
    epoch: int


class StaleError(SinkError):
    """Another member has moved a place; the transaction is rolled back."""


class ConsumerTable:
    """Rows, quarantine and places, over one connection; `keeps_new`: also the rows whose effects are not done yet."""

    def __init__(
        self,
        connection: psycopg.Connection,
        table: str,
        quarantine: str,
        retention_seconds: int,
        *,
        keeps_new: bool = False,
    ) -> None:
        self.retention_seconds = retention_seconds
        self._connection = connection
        self._names = {"places": identifier(table, "_places"), "keys": identifier(table, "_batches")}
        self._keys = self._names["keys"].as_string(connection)
        self._table = table
        self._keeps_new = keeps_new
        self._tables = PostgresTables(connection, table, quarantine, retention_seconds)
        self.id = self._tables.id
        connection.execute(self._sql(_CREATE))
        if keeps_new:
            connection.execute(self._tables.sql(Statements.CREATE_NEW))
            connection.execute(self._sql("CREATE SEQUENCE IF NOT EXISTS {keys}"))
            connection.execute(self._sql(_RENEW_KEYS), (self._keys,))
        owner = {"id": self.id, "version": 0, "metadata": OWNER}
        connection.execute(self._tables.sql(Statements.FIRST_CLAIM), owner)
        row = connection.execute(self._tables.sql(Statements.LAST), (self.id,)).fetchone()
        if row is None or json.loads(row[0])["oncegate"] != _WRITER:
            raise StopError(f"table {table}: a job writes it. Use another, with --succeeds {self.id}")

    def places(self, topic_id: str) -> dict[int, Place]:
        """Return the places; raise StopError where they are of another topic of this name, or the table is another."""
        self._tables.check_id(self._connection)
        found = self._connection.execute(self._sql(_READ), (self.id,)).fetchall()
        if others := {row[4] for row in found} - {topic_id}:
            raise StopError(
                f"table {self._table}: it has read the topic with the id {', '.join(sorted(others))}, and this one has "
                f"{topic_id}: it was deleted and recreated, or is another one. Use another table, with --succeeds "
                f"{self.id}"
            )
        return {partition: Place(first, next_, epoch) for partition, first, next_, epoch, _ in found}

    def begin(self, places: Mapping[int, Place], topic_id: str) -> None:
        with durable_transaction(self._connection):
            for partition, place in places.items():
                self._connection.execute(self._sql(_BEGIN), self._values(partition, place, topic_id))

    def write(
        self,
        made: Made,
        was: Mapping[int, Place],
        now: Mapping[int, Place],
        topic: str,
        topic_id: str,
    ) -> Written:
        """Write rows and move the places in one transaction; raise StaleError where one differs."""
        types = self._widen(made)
        with durable_transaction(self._connection):
            for partition, place in sorted(now.items()):  # in order, since each move locks its row
                given = self._values(partition, place, topic_id) | {"was": was[partition].next}
                if self._connection.execute(self._sql(_MOVE), given).rowcount != 1:
                    raise StaleError(f"partition {partition}: another member has moved it from {was[partition].next}")
            create = self._tables.sql.create_staging(_STAGING, list(types.values()), "TEMPORARY")
            self._connection.execute(create)
            statement = self._tables.sql("COPY {staging} FROM STDIN (FORMAT binary)", _STAGING)
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                copy.set_types([kind.partition("(")[0] for kind in (*STAGING.values(), *types.values())])
                for row in made.staged(types):
                    copy.write_row(row)
            own = Own(tuple(types), made.rejected, self._next_key() if self._keeps_new else None)
            return self._tables.move(self._connection, _STAGING, topic, topic_id, own)

    def due(self, partitions: Iterable[int]) -> list[int]:
        """Return the numbers of the batches, in their order, whose effects in these partitions are not done."""
        found = self._connection.execute(self._tables.sql(_DUE), (sorted(partitions),))
        return [row[0] for row in found.fetchall()]

    def new_rows(self, batch: int) -> list[dict[str, Any]]:
        """Return the rows that such a batch has added, as the table has them."""
        with self._connection.transaction(), self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute("SET LOCAL TIME ZONE 'UTC'")
            # Not prepared: PostgreSQL refuses a prepared statement once a column was added.
            return cursor.execute(self._tables.sql(_READ_NEW), (batch,), prepare=False).fetchall()

    def done(self, batch: int) -> None:
        self._connection.execute(self._tables.sql("DELETE FROM {new} WHERE version = %s"), (batch,))

    def _widen(self, made: Made) -> dict[str, str]:
        """Return the types of a transform's columns; the table gets those that it lacks."""
        if not made.columns:
            return {}
        table = identifier(self._table)
        types = made.types(present_columns(self._connection, table))
        with self._connection.transaction():
            self._connection.execute(PostgresTables.LOCK)  # others may add the same columns
            widen(self._connection, table, types, widening.OF_TRANSFORM)
        return types

    def _next_key(self) -> int:
        row = self._connection.execute("SELECT nextval(%s)", (self._keys,)).fetchone()
        return int(row[0]) if row else 0

    def _values(self, partition: int, place: Place, topic_id: str) -> dict[str, object]:
        of = {"id": self.id, "partition": partition, "topic_id": topic_id}
        return of | {"first": place.first, "next": place.next, "epoch": place.epoch}

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(**self._names)
