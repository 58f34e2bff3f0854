"""A PostgreSQL table as a sink: the executors COPY a batch into a staging table, one transaction inserts its rows.

The unique key on the fingerprint excludes duplicates, so no look-up is needed; late events are only counted.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import psycopg
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import DataType, StructType

from cloud.errors import StopError
from cloud.postgres.connection import connected, durable_transaction, identifier, read_connection
from cloud.postgres.copy_format import STAGED, lines, own_columns, staged, with_transformed
from cloud.postgres.statements import Statements, kind_of, type_of
from cloud.postgres.tables import GENERATED, Own, PostgresTables, present_columns, widen
from cloud.runtime import jvm
from cloud.sinks import Tables
from cloud.table import rows, widening
from cloud.table.commits import BATCH_BITS, Commit, parse, to_json
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon, is_fresh
from cloud.table.sink import NewRows, Written
from cloud.table.transform import Transform

LINES_AT_ONCE = 500
_STAGING, _STAGING_BYTES = "_staging_", 6

logger = logging.getLogger(__name__)


class PostgresSink:
    """A `Sink` of three tables: events, quarantine, and the owner's row with the offsets."""

    def __init__(
        self,
        connection: str,
        table: str,
        quarantine: str,
        devices: Devices,
        retention_seconds: int,
        transform: Transform | None = None,
        *,
        keeps_new: bool = False,
    ) -> None:
        self._connection = connection
        self._table = table
        with connected(connection) as opened:
            self._tables = PostgresTables(opened, table, quarantine, retention_seconds)
            if keeps_new:
                opened.execute(self._tables.sql(Statements.CREATE_NEW))
        self.id = self._tables.id
        self.folders: tuple[str, ...] = ()
        self._sql = self._tables.sql
        self._devices = devices
        self._transform = transform
        self._keeps_new = keeps_new
        self._known: int | None = None
        """The version of the table's last commit that this sink has read or made."""
        self._has_dropped_left = False
        """Whether the staging tables of earlier jobs are dropped."""
        self.last_commit()

    def last_commit(self) -> Commit | None:
        with connected(self._connection) as connection:
            last = self._last(connection)
        self._known = None if last is None else last.version
        return last

    def last_claim(self) -> int:
        return 0 if self._known is None else self._known >> BATCH_BITS

    def check(self) -> None:
        known = self._known  # before the last commit, which a batch may be making
        with connected(self._connection) as connection:
            self._tables.check_id(connection)
            last = self._last(connection)
            if known is not None and (last is None or last.version < known):
                raise self._changed(connection)
        # PostgreSQL does not report whether another program has deleted rows.

    def claim(self, commit: Commit) -> None:
        with connected(self._connection) as connection:
            claim = Statements.FIRST_CLAIM if self._known is None else Statements.CLAIM
            with durable_transaction(connection):
                is_ours = connection.execute(self._sql(claim), self._owner(commit)).rowcount > 0
            if not is_ours:
                raise self._changed(connection)
            self._known = commit.version
            self._drop_left(connection)

    def new_rows(self) -> NewRows | None:
        """Return the rows of the table's latest batch, for the user's effects; the executors read them."""
        with connected(self._connection) as connection:
            version, count = connection.execute(self._sql(Statements.NEW)).fetchone() or (None, 0)
            found = present_columns(connection, identifier(self._table))
            kinds_found = {name: kind_of(type_.removesuffix(GENERATED)) for name, type_ in found.items()}
            own = {name: kind for name, kind in kinds_found.items() if kind and name not in rows.COLUMNS}
            statement = self._sql(Statements.READ_NEW, own=[(name, name) for name in own]).as_string(connection)
        if not count:
            return None
        spark = SparkSession.builder.getOrCreate()
        parts = min(spark.sparkContext.defaultParallelism, -(-count // LINES_AT_ONCE))
        reader = partial(_read_new, self._connection, statement, parts)
        read = spark.sparkContext.range(parts, numSlices=parts).mapPartitions(reader)
        kinds = {name: kind.simpleString() for name, kind in rows.COLUMNS.items()} | own
        schema = ", ".join(f"{jvm.quoted(name)} {kind}" for name, kind in kinds.items())
        return NewRows(f"{self.id}-{version}", spark.createDataFrame(read, schema, verifySchema=False))

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        staging = f"{_STAGING}{secrets.token_hex(_STAGING_BYTES)}"
        judged = survivors.withColumn("fresh", is_fresh(horizon))
        # One connection for all, which also ends where the server restarts and empties the staging table (decision 20).
        with connected(self._connection) as connection:
            if not self._has_dropped_left:  # a job that was killed in a batch starts again under the same claim
                self._check_claim(connection)
                self._drop_left(connection)
            frame = staged(judged, self._devices.frame())
            logger.info("batch=%d stage=write passes=1", commit.batch)
            if self._transform is None:
                sent, own = self._copy(frame, staging, {}, connection), Own()
            else:
                with self._transform.of(frame) as made:
                    names = own_columns(made.columns)
                    self._widen(made.columns, connection)
                    sent = self._copy(with_transformed(made), staging, names, connection)
                    own = Own(made.columns.names, made.rejected)
            logger.info("batch=%d stage=staged rows=%d", commit.batch, sent)
            with durable_transaction(connection):
                written = self._move(connection, staging, sent, commit, own)
            self._known = commit.version
        return written

    def _widen(self, own: StructType, connection: psycopg.Connection) -> None:
        """Add the columns of a transform that the table lacks."""
        columns_of: dict[str, str] = {}
        for field in own:
            if (kind := type_of(field.dataType.simpleString())) is None:
                raise StopError(
                    f"table {self._table}: the transform's column {field.name} has the type "
                    f"{field.dataType.simpleString()}, which PostgreSQL has no column for: make a text of it by to_json"
                )
            columns_of[field.name] = kind
        widen(connection, identifier(self._table), columns_of, widening.OF_TRANSFORM)

    def _copy(self, frame: DataFrame, staging: str, own: dict[str, DataType], connection: psycopg.Connection) -> int:
        """Copy the frame by the executors; return the number of lines that successful tasks have sent."""
        types = [type_of(kind.simpleString()) or "" for kind in own.values()]
        connection.execute(self._sql.create_staging(staging, types))
        statement = self._sql("COPY {staging} FROM STDIN", staging).as_string(connection)
        copier = partial(_copy_lines, self._connection, statement)
        with jvm.errors_of_executors():
            return int(lines(frame, {**STAGED, **own}).rdd.mapPartitions(copier).sum())

    def _move(self, connection: psycopg.Connection, staging: str, sent: int, commit: Commit, own: Own) -> Written:
        if connection.execute(self._sql(Statements.ADVANCE), self._owner(commit)).rowcount == 0:
            raise self._changed(connection)
        counted = connection.execute(self._sql("SELECT count(*) FROM {staging}", staging)).fetchone()
        if (there := counted[0] if counted else 0) < sent:
            raise StopError(f"table {self._table}: {sent} rows were sent, {there} are staged; nothing is committed")
        version = commit.version if self._keeps_new else None
        if self._keeps_new:
            connection.execute(self._sql(Statements.FORGET_NEW))
        return self._tables.move(connection, staging, commit.topic, commit.topic_id, replace(own, version=version))

    def _check_claim(self, connection: psycopg.Connection) -> None:
        """Raise StopError where another job has committed since: its staging table must stay."""
        last = self._last(connection)
        if (None if last is None else last.version) != self._known:
            raise self._changed(connection)

    def _drop_left(self, connection: psycopg.Connection) -> None:
        """Drop the staging tables of jobs that have ended, or will."""
        pattern = f"^{self._table.split('.')[-1]}{_STAGING}[0-9a-f]{{{2 * _STAGING_BYTES}}}$"
        left = connection.execute(Statements.LEFT_STAGING, {"pattern": pattern, "table": self._table}).fetchall()
        for (staging,) in left:
            connection.execute(f"DROP TABLE IF EXISTS {staging}".encode())
        self._has_dropped_left = True

    def _owner(self, commit: Commit) -> dict[str, Any]:
        return {"id": self.id, "version": commit.version, "metadata": to_json(commit), "known": self._known}

    def _last(self, connection: psycopg.Connection) -> Commit | None:
        row = connection.execute(self._sql(Statements.LAST), (self.id,)).fetchone()
        return parse(row[0]) if row else None

    def _changed(self, connection: psycopg.Connection) -> StopError:
        """Return the error for a table whose last commit is not the known one."""
        last = self._last(connection)
        if self._known is not None and (last is None or last.version < self._known):
            return StopError(
                f"table {self._table}: it has lost commits, such as by a failover to a standby that had not received "
                f"them (last commit: {last}). Start with a new checkpoint, which reads again what the table lacks"
            )
        return StopError(f"table {self._table}: another job has claimed it since; this job ends for good")


def _copy_lines(connection: str, statement: str, rows: Iterable[Row]) -> Iterator[int]:
    """Copy the lines of one partition in an executor, and yield their number; a task that fails leaves none."""
    sent, texts = 0, (row[0] for row in rows)
    with (
        connected(connection, autocommit=False) as opened,
        opened.cursor() as cursor,
        cursor.copy(statement.encode()) as copy,
    ):
        while some := list(islice(texts, LINES_AT_ONCE)):
            copy.write("".join(some))
            sent += len(some)
    yield sent


def _read_new(connection: str, statement: str, parts: int, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    """Read a part of the latest batch's rows in an executor."""
    with connected(connection, autocommit=False) as opened:
        opened.execute("SET TIME ZONE 'UTC'")
        for number in numbers:
            with opened.cursor(name="new") as cursor:  # of the server, so that not all are in memory
                cursor.execute(statement.encode(), {"parts": parts, "part": number})
                yield from cursor


def open_tables(_: SparkSession, tables: Tables, devices: Devices, retention: int, **processing: Any) -> PostgresSink:
    """Open these tables in the database that their connection file names."""
    assert tables.connection is not None
    connection = read_connection(tables.connection)
    return PostgresSink(connection, tables.table, tables.quarantine, devices, retention, **processing)
