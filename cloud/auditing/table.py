"""The audit's view of the table in Delta or PostgreSQL: labels, fingerprints and offsets."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.auditing import leaves
from cloud.auditing.topic import CONTENT_SQL, TOLD, TOLD_SQL, content, told
from cloud.hooks import REJECTED
from cloud.runtime import jvm
from cloud.sinks import Tables
from cloud.table.layout import Reason
from contract.event import TYPE_RESERVED_PREFIX

_PLACE = ("kafka_partition", "kafka_offset")
# The fingerprint begins each value of a gateway.
_REJECTED = f"CASE WHEN reason LIKE '{REJECTED}%' THEN CAST(substr(value, 17, 32) AS STRING) END"
_REJECTED_SQL = f"CASE WHEN reason LIKE '{REJECTED}%' THEN convert_from(substr(value, 17, 32), 'UTF8') END"
_FOREIGN = f"CASE WHEN reason = '{Reason.MAC}' THEN 1 END"
_APPENDED_SQL = "coalesce(appended, received)"


@dataclass(frozen=True, slots=True)
class TableView:
    """The table's content, as far as the audit needs it."""

    rows: DataFrame
    """gateway, epoch, sequence, fingerprint (hex), kafka_partition, kafka_offset, appended (by Kafka's clock), told
    (as returned by `auditing.topic.told`)."""
    leaves: DataFrame
    """gateway, epoch, sequence, leaf (`auditing.leaves`)."""
    quarantine: DataFrame
    """topic_id, kafka_partition, kafka_offset, content (as returned by `auditing.topic.content`), rejected: the
    fingerprint (hex) of an event that the user's transform has rejected, so that its duplicates have no row either;
    foreign: not null where the record is not of the gateway that it names."""
    gateway_events: DataFrame
    """The gateways' own events: gateway, epoch, type, data, appended."""


def table_id(spark: SparkSession | None, tables: Tables) -> str:
    """Return the id by which receipts name a table; Spark is needed for one in folders."""
    return str(resolve_name(tables.kind.identifies)(spark, tables))


def id_of_delta(spark: SparkSession, tables: Tables) -> str:
    """Return the id of a Delta table."""
    detail = spark.sql(f"DESCRIBE DETAIL delta.{jvm.quoted(tables.table)}").select("id")
    return str(detail.collect()[0]["id"])


def id_of_postgres(_: SparkSession | None, tables: Tables) -> str:
    """Return the id in the table's comment."""
    from cloud.postgres.connection import connected, identifier, read_connection

    assert tables.connection is not None
    with connected(read_connection(tables.connection)) as opened:
        name = identifier(tables.table).as_string(opened)
        row = opened.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (name,)).fetchone()
    return str(row[0] if row else None).removeprefix("oncegate:")


def read_table(spark: SparkSession, tables: Tables) -> TableView:
    """Return a view of the tables' present state."""
    view: TableView = resolve_name(tables.kind.views)(spark, tables)
    return view


def frames_of_delta(spark: SparkSession, tables: Tables) -> tuple[DataFrame, DataFrame]:
    """Return the present rows of table and quarantine."""
    load = spark.read.format("delta").load
    return load(tables.table), load(tables.quarantine)


def of_frames(spark: SparkSession, tables: Tables) -> TableView:
    """Return a view of a table and its quarantine that Spark reads, with the columns that the job writes."""
    events, quarantine = resolve_name(tables.kind.frames)(spark, tables)
    appended = F.coalesce("appended", "received").alias("appended")
    return TableView(
        events.select(
            *("gateway", "epoch", "sequence"),
            F.lower(F.hex("fingerprint")).alias("fingerprint"),
            *(*_PLACE, appended, told(*map(F.col, TOLD)).alias("told")),
        ),
        events.select("gateway", "epoch", "sequence", leaves.of_row(events.columns).alias("leaf")),
        quarantine.select(
            "topic_id",
            *_PLACE,
            content().alias("content"),
            F.expr(_REJECTED).alias("rejected"),
            F.expr(_FOREIGN).alias("foreign"),
        ),
        events.filter(F.startswith("type", F.lit(TYPE_RESERVED_PREFIX))).select(
            "gateway", "epoch", "type", "data", appended
        ),
    )


def of_postgres(spark: SparkSession, tables: Tables) -> TableView:
    """Copy the columns into files of this machine, and read those: one pass over the table, and no JDBC driver."""
    from cloud.postgres.connection import connected, identifier, read_connection

    folder = Path(tempfile.mkdtemp(prefix="oncegate-audit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark reads the files until it ends
    place = ", ".join(_PLACE)
    assert tables.connection is not None
    connection = read_connection(tables.connection)
    with connected(connection) as opened:
        found = opened.execute(f"SELECT * FROM {identifier(tables.table).as_string(opened)} LIMIT 0".encode())
        present = [column.name for column in found.description or ()]
    leaf = f"CASE WHEN raw IS NULL THEN {leaves.row_sql(present)} END, encode(raw, 'hex')"
    queries = {
        "rows": (
            f"gateway, epoch, sequence, encode(fingerprint, 'hex'), {place}, {_APPENDED_SQL}, {TOLD_SQL}, {leaf}",
            tables.table,
            "",
        ),
        "quarantine": (f"topic_id, {place}, {CONTENT_SQL}, {_REJECTED_SQL}, {_FOREIGN}", tables.quarantine, ""),
        "gateway_events": (
            f"gateway, epoch, type, data, {_APPENDED_SQL}",
            tables.table,
            f"WHERE type LIKE '{TYPE_RESERVED_PREFIX}%'",
        ),
    }
    with connected(connection) as opened:
        # _MOMENT reads times in this form alone; the server's default may be another one.
        opened.execute("SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)")
        for name, (columns, table, where) in queries.items():
            source = f"SELECT {columns} FROM {identifier(table).as_string(opened)} {where}"
            with (
                (folder / name).open("wb") as file,
                opened.cursor() as cursor,
                cursor.copy(f"COPY ({source}) TO STDOUT (FORMAT csv)".encode()) as copy,
            ):
                for block in copy:
                    file.write(block)
    places = "kafka_partition int, kafka_offset bigint"
    schemas = {
        "rows": f"gateway string, epoch string, sequence bigint, fingerprint string, {places}, "
        "appended timestamp, told string, leaf string, raw string",
        "quarantine": f"topic_id string, {places}, content string, rejected string, foreign int",
        "gateway_events": "gateway string, epoch string, type string, data string, appended timestamp",
    }
    frames = {
        name: spark.read.csv(f"file://{folder / name}", schema, multiLine=True, escape='"', timestampFormat=_MOMENT)
        for name, schema in schemas.items()
    }
    of_raw = leaves.of_raw(F.unhex("raw"), F.unhex("fingerprint"))
    hashed_leaf = F.when(F.col("raw").isNull(), F.unhex("leaf")).otherwise(of_raw)
    hashed = frames["rows"].select("gateway", "epoch", "sequence", hashed_leaf.alias("leaf"))
    return TableView(frames["rows"].drop("leaf", "raw"), hashed, frames["quarantine"], frames["gateway_events"])


_MOMENT = "yyyy-MM-dd HH:mm:ss[.SSSSSS][.SSSSS][.SSSS][.SSS][.SS][.S]X"
