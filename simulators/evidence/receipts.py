"""Hold the receipts of the processing group against what the table's own last commit says it has."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from contract.topics import EVENTS

GROUP = "oncegate-cloud"
ANSWER_SECONDS_MAX = 30.0


def ahead(bootstrap_servers: str, table: Path, group: str = GROUP) -> int:
    """Count the records that have a receipt and that no commit of the table covers: there must never be any."""
    ends = _ends(table)
    return sum(
        max(0, committed.offset - ends.get(committed.partition, 0))
        for committed in _committed(bootstrap_servers, group)
    )


def _committed(bootstrap_servers: str, group: str) -> list[TopicPartition]:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(timeout=ANSWER_SECONDS_MAX).topic_partitions or []
    return [one for one in found if one.topic == EVENTS and one.offset > 0]


def _ends(table: Path) -> dict[int, int]:
    """Give where each partition is to be read on, as the table's latest commit of the job says."""
    try:
        history = DeltaTable(table).history()
    except TableNotFoundError:
        return {}
    for entry in history:
        said = json.loads(entry.get("userMetadata") or "{}")
        if "ends" in said:
            return {int(partition): int(offset) for partition, offset in said["ends"].items()}
    return {}
