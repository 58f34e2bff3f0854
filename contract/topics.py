"""The topic's name, and the settings that the delivery guarantee depends on."""

from typing import Final

EVENTS: Final = "oncegate.events"

PARTITIONS: Final = 12
REPLICAS: Final = 3
REPLICAS_IN_SYNC_MIN: Final = 2

RETENTION_DAYS_MIN: Final = 14


def settings(replicas: int = REPLICAS) -> dict[str, str]:
    """Return the topic's settings for a number of replicas; with one, no more than one can be in sync."""
    return {
        # Under CreateTime Kafka refuses records an hour ahead, and its retention deletes those of 1970 at once.
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "delete",
        "retention.ms": str(RETENTION_DAYS_MIN * 86_400_000),
        "min.insync.replicas": str(min(replicas, REPLICAS_IN_SYNC_MIN)),
        "unclean.leader.election.enable": "false",
    }
