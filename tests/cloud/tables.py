"""Records as a frame, as the Kafka source gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from tests.cloud.gateway import Record, now

_SCHEMA = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


def topic(spark: SparkSession, records: Sequence[Record], appended: int | None = None) -> DataFrame:
    """Lay records into partition 0, from offset 0 on."""
    moment = datetime.fromtimestamp((now() if appended is None else appended) / 1000, UTC)
    rows = [
        (record.key, record.value, 0, offset, moment, [(name, value) for name, value in record.headers])
        for offset, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, _SCHEMA)
