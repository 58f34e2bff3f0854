"""The quarantine: what can not be a row, raw and with its reason, so that nothing is ever dropped without a word."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cloud.commits import Commit
from cloud.delta_table import Table

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("kafka_partition", IntegerType()),
        StructField("kafka_offset", LongType()),
        StructField("reason", StringType()),
        StructField("kafka_key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
        StructField("appended", TimestampType()),
        StructField("quarantined_at", TimestampType()),
    ]
)


def bad_records(survivors: DataFrame) -> DataFrame:
    """Give those that are not well-formed."""
    return survivors.filter(F.col("reason").isNotNull())


def put(table: Table, records: DataFrame, commit: Commit) -> int:
    """Write the records, without those that the quarantine has already, and say how many."""
    rows = records.select(
        F.lit(commit.topic).alias("topic"),
        *("kafka_partition", "kafka_offset", "reason", "kafka_key", "value", "headers", "appended"),
        F.col("seen").alias("quarantined_at"),
    )
    last = table.last_commit()
    if last is not None and last.topic_id == commit.topic_id:
        if last.is_by_same(commit):
            return 0  # killed between this write and the table's
        rows = rows.filter(~_is_below(last.ends))
    return table.append(rows, commit)


def _is_below(ends: dict[int, int]) -> Column:
    below = [(F.col("kafka_partition") == partition) & (F.col("kafka_offset") < end) for partition, end in ends.items()]
    return reduce(lambda either, other: either | other, below, F.lit(False))
