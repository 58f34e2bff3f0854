"""Reads which rights the agent's login has on a group, without reading or changing the group."""

from __future__ import annotations

import threading
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient  # type: ignore[attr-defined]  # its __all__ lacks the former

from agent.forward.kafka.client import REQUEST_SECONDS_MAX, code_of, wait_for

RETRY_SECONDS: Final = 0.2
_MOVING: Final = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
"""The group's coordinator is being elected, or loads its offsets, as after a restart of a broker."""


def read_group_rights(admin: AdminClient, group: str) -> frozenset[AclOperation] | None:
    """Return the rights on a group, whether it exists or not; None where the service does not state them.

    Raise KafkaException where no broker answers.
    """
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    while True:
        try:
            return _ask(admin, group)
        except KafkaException as error:
            if code_of(error) == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return frozenset()
            if code_of(error) not in _MOVING or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _ask(admin: AdminClient, group: str) -> frozenset[AclOperation] | None:
    question = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=REQUEST_SECONDS_MAX
    )[group]
    stated = wait_for(question, threading.Event()).authorized_operations
    return frozenset(stated) if stated else None  # without any right there is an error
