"""Checks the agent's rights for exactly-once delivery: on the transactional id of each lane, and on its group."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its __all__ lacks it

from agent.cli.doctor.excess import no_gateway, read_group_rights
from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.cli.doctor.kafka import KafkaConnection
from agent.config.settings import KafkaSettings
from agent.forward.delivery.transaction import GROUP_PREFIX
from agent.forward.forwarder import mode_of, transactional_id
from agent.forward.kafka.client import REQUEST_SECONDS_MAX, code_of, describe, producer_config

_REFUSED_MS: Final = 2_147_483_000
"""A time limit that brokers refuse once they have checked the rights, before they change anything.

The default of their transaction.max.timeout.ms is 900,000. A broker that allows this limit gives the id to this
producer, and an agent that had it stops sending until its next start.
"""
_CHECK: Final = "rights"


def check_transactional_ids(
    connection: KafkaConnection, gateway: str, lanes: Sequence[str], *, agent_runs: bool
) -> Iterator[Finding]:
    """Check the rights of the default lane, and of these others; yield nothing in the other delivery modes.

    While the agent runs, its transactional ids are not requested, since some brokers would take them from it.
    """
    settings = connection.settings
    if settings.delivery != "exactly-once":
        return
    for lane in ("", *lanes):
        name = transactional_id(gateway, lane)
        if agent_runs:
            refusal = None
            text = f"the agent may use group {GROUP_PREFIX}{name}; the id {name} is not checked while the agent runs"
        else:
            refusal = _refusal_of_id(settings, name)
            text = f"the agent may use transactional id {name} and its group"
        yield refusal or _refusal_of_group(connection, name) or fine(_CHECK, text)
    yield from _check_other_ids(settings, gateway)


def _refusal_of_id(settings: KafkaSettings, name: str) -> Finding | None:
    """Return why the agent may not begin transactions; None where it may."""
    error = _is_refused(settings, name)
    if error is None:
        return None
    if code_of(error) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        text = f"transactional id {name}: the agent lacks WRITE"
        return wrong(_CHECK, text, "grant WRITE on it: docs/kafka.md")
    return warning(_CHECK, f"transactional id {name}: not checked: {describe(error)}")


def _is_refused(settings: KafkaSettings, name: str) -> KafkaException | None:
    """Request a transactional id without taking it; return why it is refused, None where it would be granted."""
    silent = logging.getLogger(f"{__name__}.client")
    silent.disabled = True  # the client logs the refusal as a fatal error
    config = producer_config(settings, mode_of(settings, name).fixed)
    producer = Producer({**config, "transaction.timeout.ms": str(_REFUSED_MS)}, logger=silent)
    try:
        producer.init_transactions(REQUEST_SECONDS_MAX)
    except KafkaException as error:
        return None if code_of(error) == KafkaError.INVALID_TRANSACTION_TIMEOUT else error
    return None


def _refusal_of_group(connection: KafkaConnection, name: str) -> Finding | None:
    """Return why the agent may not commit its marker, and read it; None where it may."""
    group = GROUP_PREFIX + name
    try:
        allowed = read_group_rights(connection.admin, group)
    except KafkaException as error:
        return warning(_CHECK, f"group {group}: not checked: {describe(error)}")
    if allowed is None or AclOperation.READ in allowed:
        return None
    return wrong(_CHECK, f"group {group}: the agent lacks READ", "grant READ on it: docs/kafka.md")


def _check_other_ids(settings: KafkaSettings, gateway: str) -> Iterator[Finding]:
    """Report that the agent may use ids other than its own, by one that no gateway has."""
    if _is_refused(settings, no_gateway(gateway)) is None:
        text = "this login may use transactional ids of other gateways, and stop these"
        yield warning(_CHECK, text, f"grant it the id {gateway}, and the prefix {gateway}/ for lanes: docs/kafka.md")
