"""Records as a frame, as Kafka's source returns them, and tables with some of them."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cloud import hooks
from cloud.delta.sink import TABLE, open_tables
from cloud.delta.table import DeltaTable, Layout
from cloud.iceberg import table as iceberg
from cloud.postgres.sink import PostgresSink
from cloud.sinks import DELTA, ICEBERG, Tables
from cloud.stream.records import read_records
from cloud.table.commits import CLAIM_ONLY, Commit
from cloud.table.devices import Devices
from cloud.table.freshness import Horizon
from cloud.table.lake import LakeSink
from cloud.table.rows import decode
from cloud.table.sink import Written
from cloud.table.transform import Transform
from contract.event import Event
from simulators.services.postgres import Postgres
from tests.cloud.gateway import Record, now
from tests.cloud.running import CloudSide
from tests.support.iceberg import Iceberg

DEVICE = "urn:dev:mac:0000000000000001"
DAY = 86_400_000
ACCEPTED = 1_700_000_000_000
COMMIT = Commit("t", "c", 1, 0, "events", "id", {0: 0}, {0: 9}, {0: 0}, 0, 60)
ALL_LATE = Horizon(ACCEPTED + 30 * DAY, ACCEPTED, 3600, overlaps=True)
_SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def topic(spark: SparkSession, records: Sequence[Record], appended: int | None = None, first: int = 0) -> DataFrame:
    """Place records into partition 0, from an offset on."""
    moment = datetime.fromtimestamp((now() if appended is None else appended) / 1000, UTC)
    rows = [
        (record.key, record.value, 0, offset, moment, [(name, value) for name, value in record.headers])
        for offset, record in enumerate(records, first)
    ]
    return spark.createDataFrame(rows, _SCHEMA)


def append_as_another(spark: SparkSession, folder: Path, metadata: str = "", layout: Layout = TABLE) -> None:
    """Write a commit without rows as another program does."""
    writer = spark.createDataFrame([], layout.schema).write.format("delta").mode("append")
    # Delta leaves out a commit that holds nothing at all.
    writer = writer.option("txnAppId", "another").option("txnVersion", time.time_ns())
    writer.option("userMetadata", metadata).save(str(folder))


def age_log(folder: Path, seconds: float) -> None:
    """Set the times of all entries of a table's log back."""
    for file in (folder / "_delta_log").iterdir():
        if file.name[0].isdigit():
            moment = file.stat().st_mtime - seconds
            os.utime(file, (moment, moment))


def versions(folder: Path) -> list[int]:
    """Return the versions whose entries the log of a table has."""
    return sorted(int(file.stem) for file in (folder / "_delta_log").glob("*.json"))


def plan(checkpoint: Path, batch: int, end: int, time_ms: int = 1, watermark_ms: int = 0) -> None:
    """Write the plan of a batch, up to an offset of partition 0, as Spark does."""
    times = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": time_ms, "conf": {}}
    for name, lines in ((f"offsets/{batch}", [times, {"events": {"0": end}}]), ("sources/0/0", [{"events": {"0": 0}}])):
        file = checkpoint / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(("v1", *map(json.dumps, lines))))


def late(spark: SparkSession, records: list[Record]) -> DataFrame:
    return read_records(topic(spark, records)).withColumn("fresh", F.lit(False))


def table_of(spark: SparkSession, folder: Path, records: list[Record]) -> DeltaTable:
    table = DeltaTable(spark, str(folder / "events"), TABLE)
    assert table.append(decode(late(spark, records)), COMMIT) == len(records)
    return table


def counters(*numbers: int) -> list[Event]:
    return [Event(DEVICE, id=number, data={"n": number}) for number in numbers]


def delta_sink(spark: SparkSession, table: Path, transform: Transform | None = None) -> LakeSink:
    tables = Tables(DELTA, str(table), f"{table}_quarantine")
    return open_tables(spark, tables, Devices(spark, None), 7 * 86_400, transform=transform)


def sink_of(spark: SparkSession, folder: Path) -> LakeSink:
    sink = delta_sink(spark, folder / "events")
    sink.claim(replace(COMMIT, batch=CLAIM_ONLY, ends={}))
    return sink


@dataclass(slots=True)
class SinkSide:
    """A table and its quarantine in one of the sinks, to which batches are written without a stream."""

    spark: SparkSession
    folder: Path
    postgres: Postgres | None
    name: str
    batch: int = 0
    sink: Any = None
    """The one that has written last."""
    iceberg: Iceberg | None = None

    def open(self, transform: Callable[..., Any] | None = None) -> Any:
        made = None if transform is None else Transform(hooks.Hook("plant:transform", lambda: transform))
        own = (Devices(self.spark, None), 7 * 86_400, made)
        if self.postgres is not None:
            return PostgresSink(self.postgres.connection, self.name, f"{self.name}_quarantine", *own, keeps_new=True)
        if self.iceberg is not None:
            table = f"db.{self.name}"
            tables = Tables(ICEBERG, table, f"{table}_quarantine", self.iceberg.write_catalog())
            return iceberg.open_tables(self.spark, tables, *own[:2], transform=made)
        return delta_sink(self.spark, self.folder / "events", made)

    def write(
        self, records: list[Record], transform: Callable[..., Any] | None = None, horizon: Horizon = ALL_LATE
    ) -> Written:
        """Write a batch, at the first offsets, by a sink that is opened for it."""
        self.sink = self.open(transform)
        if not self.batch:
            self.sink.claim(replace(COMMIT, batch=CLAIM_ONLY, ends={}))
        self.batch += 1
        written: Written = self.sink.write(
            read_records(topic(self.spark, records)), replace(COMMIT, batch=self.batch), horizon
        )
        return replace(written, ahead=None)

    def table(self) -> CloudSide:
        """Return a reader of the tables."""
        return CloudSide("unused:9092", self.name, self.folder, postgres=self.postgres, iceberg=self.iceberg)
