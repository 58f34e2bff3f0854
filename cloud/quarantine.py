"""The quarantine: what can not be a row, raw and with its reason, so that nothing is ever dropped without a word."""

from __future__ import annotations

from pyspark.sql import DataFrame
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
_PLACE = ["topic_id", "kafka_partition", "kafka_offset"]
SCHEMA = StructType(
    [
        StructField("topic_id", StringType()),
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
        F.lit(commit.topic_id).alias("topic_id"),
        F.lit(commit.topic).alias("topic"),
        *("kafka_partition", "kafka_offset", "reason", "kafka_key", "value", "headers", "appended"),
        F.col("seen").alias("quarantined_at"),
    )
    last = table.last_commit()
    if last is not None and last.is_by_same(commit):
        return 0  # killed between this write and the table's
    if last is not None and _overlaps(commit, last):
        # By place: with other bounds a batch may put another record here than one that was killed after this write.
        rows = rows.join(table.rows().select(*_PLACE), on=_PLACE, how="left_anti").select(*SCHEMA.names)
    return table.append(rows, commit)


def _overlaps(commit: Commit, last: Commit) -> bool:
    """Whether the quarantine may have a record of this batch; its commits' ends only grow."""
    if last.topic_id != commit.topic_id:
        return True
    return any(commit.starts.get(partition, 0) < end for partition, end in last.ends.items())
