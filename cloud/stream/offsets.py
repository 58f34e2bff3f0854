"""Where a batch stands against what the table has read already."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum

from cloud.errors import StopError
from cloud.table.commits import Commit, Offsets

_EARLIEST = -2
"""Kafka's own number for the earliest offset."""


class Standing(Enum):
    """What the table has of a batch."""

    NEW = "new"
    OVERLAPS = "overlaps"
    DONE = "done"


def compare(starts: Offsets, ends: Offsets, last: Commit) -> Standing:
    """Compare a batch with the table's last commit; a gap between them is an error, for nobody would ever read it."""
    for partition, end in last.ends.items():
        if (start := starts.get(partition)) is None or start > end:
            raise StopError(
                f"partition {partition}: the batch starts at {start}, the table has read up to {end}; the checkpoint "
                "is not of this table, or newer than it: start with a new checkpoint"
            )
    if last.ends and all(end <= last.ends.get(partition, -1) for partition, end in ends.items()):
        return Standing.DONE
    if any(starts[partition] < end for partition, end in last.ends.items()):
        return Standing.OVERLAPS
    return Standing.NEW


def complete_starts(starts: Offsets, ends: Offsets) -> Offsets:
    """Return a start for every partition; Spark reads one that is new from 0, and fails where 0 is gone."""
    return {partition: starts.get(partition, 0) for partition in ends}


def merge_first(first: Offsets, starts: Offsets) -> Offsets:
    """Keep where the table began to read each partition; a partition that is new begins where the batch does."""
    return {**starts, **first}


def starting_offsets(topic: str, last: Commit | None, log: Mapping[int, tuple[int, int]]) -> str:
    """Return where a new checkpoint starts: where the table's last commit ended, or at the earliest offset.

    `log` gives the earliest and the latest offset of each partition.
    """
    if last is None or not last.ends:
        return "earliest"
    return json.dumps({topic: {str(partition): last.ends.get(partition, _EARLIEST) for partition in sorted(log)}})


def check_log(topic: str, topic_id: str, last: Commit | None, log: Mapping[int, tuple[int, int]]) -> None:
    """Refuse a topic that is another one than the table has read, or has deleted what the table has not read yet.

    Whether it still has what was read only the partitions' leaders can tell (`topic_log`).
    """
    if last is None or not last.ends:
        return
    if last.topic_id != topic_id:
        raise StopError(another_topic(topic, last.topic_id, topic_id))
    for partition, end in last.ends.items():
        earliest = log.get(partition, (0, 0))[0]
        if earliest > end:
            raise StopError(
                f"topic {topic}, partition {partition}: its retention has deleted offsets {end} to {earliest - 1}, "
                "which the table has not read. Find out why the job was behind; then start with a new checkpoint and "
                "--read-again: it goes on at what the topic has, and what the table has stays once"
            )


def another_topic(topic: str, known: str, now: str) -> str:
    """Return what to say where the topic is not the one that the table has read."""
    return (
        f"the table has read the topic with the id {known}, topic {topic} has the id {now}: it is another one, or was "
        "deleted and recreated. Start with a new table and a new checkpoint, and name this table by --succeeds"
    )
