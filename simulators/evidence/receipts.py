"""Hold the receipts of the processing group against what the table's own last commit says it has."""

from __future__ import annotations

import json
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from contract.topics import EVENTS
from simulators.evidence.topic import Topic, failures

GROUP = "oncegate-cloud"
ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS = 0.2


def ahead(
    bootstrap_servers: str, table: Path, group: str = GROUP, answer_seconds_max: float = ANSWER_SECONDS_MAX
) -> int:
    """Count the records that have a receipt and that no commit of the table covers: there must never be any.

    The receipts are read first: a job that works meanwhile can only move the table ahead of them.
    """
    with failures(f"kafka: receipts of {group} at {bootstrap_servers}"):
        receipts = _committed(bootstrap_servers, group, answer_seconds_max)
    ends = _ends(table)
    return sum(max(0, committed.offset - ends.get(committed.partition, 0)) for committed in receipts)


def behind(bootstrap_servers: str, table: Path) -> int:
    """Count the offsets of the topic that no commit of the table covers yet."""
    ends = _ends(table)
    return sum(max(0, end - ends.get(one, 0)) for one, end in Topic(bootstrap_servers).ends().items())


def _committed(bootstrap_servers: str, group: str, seconds_max: float) -> list[TopicPartition]:
    # Never a member, since it subscribes to nothing. Not by AdminClient, which crashes before there is a coordinator
    # (librdkafka issue 5040).
    with Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False}) as reader:
        return [one for one in _answer(reader, seconds_max) if one.offset > 0]


def _answer(reader: Consumer, seconds_max: float) -> list[TopicPartition]:
    """Ask until there is an answer: the first question makes a new cluster's coordinator, and a broker may restart."""
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            partitions = reader.list_topics(EVENTS, timeout=seconds_max).topics[EVENTS].partitions
            asked = [TopicPartition(EVENTS, partition) for partition in partitions]
            return reader.committed(asked, timeout=seconds_max)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def _ends(table: Path) -> dict[int, int]:
    """Return where each partition is to be read on, as the table's latest commit of the job says."""
    try:
        history = DeltaTable(table).history()
    except TableNotFoundError:
        return {}
    for entry in history:
        said = json.loads(entry.get("userMetadata") or "{}")
        if "ends" in said:
            return {int(partition): int(offset) for partition, offset in said["ends"].items()}
    return {}
