"""Compares a batch's offsets with those that the table has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from cloud.errors import StopError
from cloud.table.commits import Commit, Offsets

if TYPE_CHECKING:  # the relay runs without Spark
    from cloud.stream.checkpoint import PlannedBatch

_EARLIEST = -2
"""Spark's number for the earliest offset."""
WITH_A_NEW_TABLE = "Start with a new table and a new checkpoint, and name this table by --succeeds"


class Overlap(Enum):
    """How much of a batch the table has: nothing, a part, or all."""

    NONE = "none"
    PARTIAL = "partial"
    COMPLETE = "complete"


def compare(starts: Offsets, ends: Offsets, last: Commit) -> Overlap:
    """Compare a batch with the table's last commit; raise StopError for a gap between them, which would stay unread."""
    for partition, end in last.ends.items():
        if (start := starts.get(partition)) is None or start > end:
            raise StopError(
                f"partition {partition}: the batch starts at {start}, the table has read up to {end}; the checkpoint "
                "is of another table, or newer than this one: start with a new checkpoint"
            )
    if last.ends and all(end <= last.ends.get(partition, -1) for partition, end in ends.items()):
        return Overlap.COMPLETE
    if any(starts[partition] < end for partition, end in last.ends.items()):
        return Overlap.PARTIAL
    return Overlap.NONE


def complete_starts(starts: Offsets, ends: Offsets) -> Offsets:
    """Return a start for every partition; Spark reads a new one from offset 0, and fails where that is gone."""
    return {partition: starts.get(partition, 0) for partition in ends}


def starting_offsets(topic: str, last: Commit | None, log: Mapping[int, tuple[int, int]]) -> str:
    """Return Spark's option for where a new checkpoint starts: the end of the table's last commit, or the earliest.

    `log` has the earliest and the latest offset of each partition.
    """
    if last is None or not last.ends:
        return "earliest"
    return json.dumps({topic: {str(partition): last.ends.get(partition, _EARLIEST) for partition in sorted(log)}})


def check_log(topic: str, topic_id: str, last: Commit | None, log: Mapping[int, tuple[int, int]]) -> None:
    """Raise StopError where the topic is not the one that the table has read, or has deleted unread records.

    `topic_log` determines whether the log was truncated, since only the partitions' leaders have that information.
    """
    if last is None or not last.ends:
        return
    if last.topic_id != topic_id:
        raise StopError(f"{another_topic(topic, last.topic_id, topic_id)}. {WITH_A_NEW_TABLE}")
    for partition, end in last.ends.items():
        earliest = log.get(partition, (0, 0))[0]
        if earliest > end:
            raise StopError(
                f"topic {topic}, partition {partition}: its retention has deleted offsets {end} to {earliest - 1}, "
                "which the table has not read. Find out why the job was behind; then start with a new checkpoint and "
                "--read-again, which reads what the topic has; events in the table are not written again"
            )


def check_plan(topic: str, planned: PlannedBatch | None, log: Mapping[int, tuple[int, int]]) -> None:
    """Raise StopError where the topic has deleted records of a batch that is to run again.

    Spark reads a batch again as it was planned, even one that the table has, and would fail at each start.
    """
    if planned is None:
        return
    for partition, start in complete_starts(planned.starts, planned.ends).items():
        earliest = log.get(partition, (0, 0))[0]
        if start < min(earliest, planned.ends[partition]):
            raise StopError(
                f"topic {topic}, partition {partition}: its retention has deleted offsets {start} to {earliest - 1}, "
                f"which batch {planned.batch} is to read. Find out why the job was behind; then start with a new "
                "checkpoint and --read-again, which reads what the topic has; events in the table are not written again"
            )


def another_topic(topic: str, known: str, now: str) -> str:
    """Return the message for a topic that is not the one that was read."""
    return (
        f"the topic that was read has the id {known}, topic {topic} has the id {now}: it is another one, or was "
        "deleted and recreated"
    )
