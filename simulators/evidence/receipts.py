"""Compares the receipts of the processing group with the offsets in the table's last commit."""

import json
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from contract.receipt import GROUP_DEFAULT
from contract.topics import EVENTS
from simulators.evidence.topic import Topic, answer, failures

ANSWER_SECONDS_MAX = 30.0


def ahead(bootstrap_servers: str, table: Path, answer_seconds_max: float = ANSWER_SECONDS_MAX) -> int:
    """Return the number of records with a receipt that no commit of the table covers; it must be zero.

    The receipts are read first: a running job can only move the table ahead of them.
    """
    with failures(f"kafka: receipts of {GROUP_DEFAULT} at {bootstrap_servers}"):
        receipts = _committed(bootstrap_servers, answer_seconds_max)
    ends = _ends(table)
    return sum(max(0, committed.offset - ends.get(committed.partition, 0)) for committed in receipts)


def behind(bootstrap_servers: str, table: Path) -> int:
    """Return the number of offsets of the topic that no commit of the table covers yet."""
    ends = _ends(table)
    return sum(max(0, end - ends.get(one, 0)) for one, end in Topic(bootstrap_servers).ends().items())


def _committed(bootstrap_servers: str, seconds_max: float) -> list[TopicPartition]:
    # Without a subscription it never joins the group. Not AdminClient, which crashes before there is a coordinator
    # (librdkafka issue 5040).
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": GROUP_DEFAULT, "enable.auto.commit": False}
    with Consumer({**settings, "log_level": 2}) as reader:

        def request() -> list[TopicPartition]:
            partitions = reader.list_topics(EVENTS, timeout=seconds_max).topics[EVENTS].partitions
            places = [TopicPartition(EVENTS, partition) for partition in partitions]
            return reader.committed(places, timeout=seconds_max)

        # The first request creates the coordinator and fails.
        return [one for one in answer(request, seconds_max) if one.offset > 0]


def _ends(table: Path) -> dict[int, int]:
    """Return the end offset of each partition, from the job's latest commit of the table."""
    try:
        history = DeltaTable(table).history()
    except TableNotFoundError:
        return {}
    for entry in history:
        metadata = json.loads(entry.get("userMetadata") or "{}")
        if "ends" in metadata:
            return {int(partition): int(offset) for partition, offset in metadata["ends"].items()}
    return {}
