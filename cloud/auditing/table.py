"""The audit's view of the table, whatever its sink is: labels, fingerprints and offsets."""

import atexit
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud.auditing import leaves
from cloud.auditing.topic import TOLD, content, told
from cloud.hooks import REJECTED
from cloud.runtime import jvm
from cloud.sinks import Tables
from cloud.table import layout
from cloud.table.layout import Reason
from contract.event import TYPE_RESERVED_PREFIX

_PLACE = ("kafka_partition", "kafka_offset")
# The fingerprint begins each value of a gateway.
_REJECTED = f"CASE WHEN reason LIKE '{REJECTED}%' THEN CAST(substr(value, 17, 32) AS STRING) END"
_FOREIGN = f"CASE WHEN reason = '{Reason.MAC}' THEN 1 END"
_TEXT_MAX = (1 << 31) - 1
_NO_PART = ("processed_at", "day", *layout.DEVICE)
"""Columns that are no part of an event, and none of its record's place."""


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


def frames_of_delta(spark: SparkSession, tables: Tables) -> tuple[DataFrame, DataFrame]:
    """Return the present rows of table and quarantine."""
    load = spark.read.format("delta").load
    return load(tables.table), load(tables.quarantine)


def read_table(spark: SparkSession, tables: Tables) -> TableView:
    """Return a view of the tables' present state."""
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


def frames_of_postgres(spark: SparkSession, tables: Tables) -> tuple[DataFrame, DataFrame]:
    """Copy both tables into files of this machine, and read those: one pass over each, and no JDBC driver."""
    from cloud.postgres.connection import connected, identifier, read_connection

    folder = Path(tempfile.mkdtemp(prefix="oncegate-audit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Spark reads the files until it ends
    assert tables.connection is not None
    frames = []
    with connected(read_connection(tables.connection)) as opened:
        opened.execute("SELECT set_config('TimeZone', 'UTC', false), set_config('bytea_output', 'hex', false)")
        for table, kinds in ((tables.table, layout.COLUMNS), (tables.quarantine, layout.QUARANTINE)):
            source, file = f"SELECT * FROM {identifier(table).as_string(opened)}", folder / table
            found = opened.execute(f"{source} LIMIT 0".encode()).description or ()
            of = {one.name: kinds[one.name] for one in found if one.name in kinds and one.name not in _NO_PART}
            lines = f"SELECT json_strip_nulls(row_to_json(one)) FROM (SELECT {', '.join(of)} FROM ({source}) all_) one"
            # Without control characters, of which JSON has none, nothing is quoted and escaped once more.
            copying = rf"COPY ({lines}) TO STDOUT (FORMAT csv, DELIMITER E'\x01', QUOTE E'\x02')"
            with file.open("wb") as written, opened.cursor() as cursor, cursor.copy(copying.encode()) as copy:
                written.writelines(copy)
            schema = ", ".join(f"{name} {kind.replace('binary', 'string')}" for name, kind in of.items())
            reader = spark.read.option("mode", "FAILFAST").option("maxStringLen", _TEXT_MAX)
            # PostgreSQL's JSON has bytes in hex, behind a backslash and an x.
            binary = {name: F.unhex(F.substring(name, 3, _TEXT_MAX)) for name, kind in of.items() if kind == "binary"}
            frames.append(reader.json(f"file://{file}", schema).withColumns(binary))
    return frames[0], frames[1]
