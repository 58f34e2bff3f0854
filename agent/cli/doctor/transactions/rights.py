"""Checks the agent's rights for exactly-once delivery: on the transactional id of each lane, and on its group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.config.settings import KafkaSettings
from agent.forward.delivery.transaction import GROUP_PREFIX
from agent.forward.forwarder import mode_of, transactional_id
from agent.forward.kafka.attempt import close
from agent.forward.kafka.client import REQUEST_SECONDS_MAX, LastError, code_of, describe, open_reader, producer_config

_REFUSED_MS: Final = 2_147_483_000
"""A time limit that brokers refuse once they have checked the rights, before they change anything.

The default of their transaction.max.timeout.ms is 900,000. A broker that allows this limit gives the id to this
producer, and an agent that had it stops sending until its next start.
"""
_CHECK: Final = "rights"
RETRY_SECONDS: Final = 0.2
_MOVING: Final = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
"""The group's coordinator is being elected, or loads its offsets, as after a restart of a broker."""


def check_transactional_ids(
    settings: KafkaSettings, gateway: str, lanes: Sequence[str], *, agent_runs: bool
) -> Iterator[Finding]:
    """Check the rights of the default lane, and of these others; yield nothing in the other delivery modes.

    While the agent runs, its transactional ids are not requested, since some brokers would take them from it.
    """
    if settings.delivery != "exactly-once":
        return
    for lane in ("", *lanes):
        name = transactional_id(gateway, lane)
        if agent_runs:
            refusal = None
            text = f"the agent may read group {GROUP_PREFIX}{name}; the id {name} is not checked while the agent runs"
        else:
            refusal = _refusal_of_id(settings, gateway, lane)
            text = f"the agent may use transactional id {name} and its group"
        yield refusal or _refusal_of_group(settings, name) or fine(_CHECK, text)


def _refusal_of_id(settings: KafkaSettings, gateway: str, lane: str) -> Finding | None:
    """Return why the agent may not begin transactions; None where it may."""
    name = transactional_id(gateway, lane)
    silent = logging.getLogger(f"{__name__}.client")
    silent.disabled = True  # the client logs the refusal as a fatal error
    config = producer_config(settings, mode_of(settings, gateway, lane).fixed)
    producer = Producer({**config, "transaction.timeout.ms": str(_REFUSED_MS)}, logger=silent)
    try:
        producer.init_transactions(REQUEST_SECONDS_MAX)
    except KafkaException as error:
        if code_of(error) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text = f"transactional id {name}: the agent lacks WRITE"
            return wrong(_CHECK, text, "grant WRITE and DESCRIBE on it: docs/kafka.md")
        if code_of(error) != KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return warning(_CHECK, f"transactional id {name}: not checked: {describe(error)}")
    return None


def _refusal_of_group(settings: KafkaSettings, name: str) -> Finding | None:
    """Return why the agent may not read its marker; None where it may. The right to commit cannot be checked."""
    group = GROUP_PREFIX + name
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    while (error := _error_of_group(settings, group)) is not None and error.code() in _MOVING:
        if time.monotonic() > deadline:
            return warning(_CHECK, f"group {group}: not checked: {error.str()}")
        time.sleep(RETRY_SECONDS)
    if error is None:
        return None
    return warning(_CHECK, f"group {group} cannot be read: {error.str()}", "grant READ on it: docs/kafka.md")


def _error_of_group(settings: KafkaSettings, group: str) -> KafkaError | None:
    """Read a group's marker with a client of its own: one that has lost a coordinator may never find another."""
    reader = open_reader(settings, group, LastError())
    try:
        (answer,) = reader.committed([TopicPartition(settings.topic, 0)], timeout=REQUEST_SECONDS_MAX)
        return answer.error
    except KafkaException as failure:  # without the right the client retries until its time is over
        error: KafkaError = failure.args[0]
        return error
    finally:
        close(reader, threading.Event())
