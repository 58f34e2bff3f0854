"""The quarantine: records that cannot be rows, raw and with the reason, so that nothing is dropped silently."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from cloud.errors import StopError
from cloud.table import layout, rows
from cloud.table.commits import Commit, Offsets
from cloud.table.lake_table import LakeTable

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_PLACE = ["topic_id", "kafka_partition", "kafka_offset"]
_CONTENT = ["kafka_key", "value", "headers"]
BESIDE = ("reason", "kafka_key", "value", "headers", "seen")
"""What is taken of a record beside the columns of its row."""
TAKEN = ("kafka_partition", "kafka_offset", "appended", *BESIDE)
SCHEMA = StructType(
    [
        StructField(name, ArrayType(_HEADER) if name == "headers" else rows.TYPES[kind])
        for name, kind in layout.QUARANTINE.items()
    ]
)

_OTHER_RECORDS = (
    "batch {batch}: its records are in quarantine, and it has other records than before: the topic's log was truncated "
    "and has grown again, --retention was changed, the transform rejects others, or another copy of an event with a "
    "reused id came first. Find out why; then start with a new checkpoint and --read-again; records in the table and "
    "its quarantine are not written again"
)


def put(table: LakeTable, records: DataFrame, commit: Commit) -> int:
    """Write the records that the quarantine does not have, and return how many.

    Raise StopError where a batch that was interrupted after this write has other records now.
    """
    new = records.select(
        F.lit(commit.topic_id).alias("topic_id"),
        F.lit(commit.topic).alias("topic"),
        *("kafka_partition", "kafka_offset", "reason", "kafka_key", "value", "headers", "appended"),
        F.col("seen").alias("quarantined_at"),
    )
    last = table.last_commit()
    if last is not None and last.is_by_same(commit):
        if not _without_those_of(table.rows(), new).isEmpty():
            raise StopError(_OTHER_RECORDS.format(batch=commit.batch))
        return 0  # the job was interrupted between this write and the table's
    if last is not None and _overlaps(commit, last):
        new = _without_those_of(table.rows(), new)
    return table.append(new, replace(commit, ends=_furthest(commit, last)))


def _without_those_of(there: DataFrame, new: DataFrame) -> DataFrame:
    """Return the records that `there` does not have, by place and content.

    After an interrupted batch, another one with other offsets may have some of its records. Where the log was truncated
    and has grown again, another record has the place of one in quarantine.
    """
    same = [new[name] == there[name] for name in _PLACE] + [new[name].eqNullSafe(there[name]) for name in _CONTENT]
    return new.join(there, on=same, how="left_anti")


def _overlaps(commit: Commit, last: Commit) -> bool:
    """Whether the quarantine may have records of this batch."""
    if last.topic_id != commit.topic_id:
        return True
    return any(commit.starts.get(partition, 0) < end for partition, end in last.ends.items())


def _furthest(commit: Commit, last: Commit | None) -> Offsets:
    """Return the ends below which the quarantine may have records; a batch may end below the last one."""
    if last is None or last.topic_id != commit.topic_id:
        return commit.ends
    return {**last.ends, **{p: max(end, last.ends.get(p, end)) for p, end in commit.ends.items()}}
