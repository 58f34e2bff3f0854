"""Records as a frame, as the Kafka source gives them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from cloud.delta.sink import TABLE
from tests.cloud.gateway import Record, now

_SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def topic(spark: SparkSession, records: Sequence[Record], appended: int | None = None, first: int = 0) -> DataFrame:
    """Lay records into partition 0, from an offset on."""
    moment = datetime.fromtimestamp((now() if appended is None else appended) / 1000, UTC)
    rows = [
        (record.key, record.value, 0, offset, moment, [(name, value) for name, value in record.headers])
        for offset, record in enumerate(records, first)
    ]
    return spark.createDataFrame(rows, _SCHEMA)


def append_as_another(spark: SparkSession, folder: Path, metadata: str = "") -> None:
    """Write a commit without rows as somebody else does."""
    writer = spark.createDataFrame([], TABLE.schema).write.format("delta").mode("append")
    # Delta leaves out a commit that holds nothing at all.
    writer = writer.option("txnAppId", "another").option("txnVersion", time.time_ns())
    writer.option("userMetadata", metadata).save(str(folder))
