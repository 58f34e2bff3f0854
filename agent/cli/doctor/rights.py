"""Checks the rights of the agent's login: for exactly-once delivery, and by reading alone those beyond its needs."""

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks the first
    AclOperation,
    AdminClient,
    TopicDescription,
)

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.cli.doctor.kafka import WITH_RIGHTS, KafkaConnection
from agent.config.settings import KafkaSettings
from agent.forward.forwarder import mode_of, transactional_id
from agent.forward.kafka import client
from agent.forward.modes.transaction import GROUP_PREFIX

_CHECK: Final = "rights"
_PAGE: Final = "docs/kafka.md, Rights"
_ON_TOPIC: Final = frozenset(
    (AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
)
_READING: Final = frozenset((AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS))
_DESCRIBING: Final = frozenset((AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS))
_ASKED_MAX: Final = 100
"""Of other topics, and of other gateways' groups: how many are asked about, by name."""
EVERYTHING: Final = (
    "every client may do everything, or this login is a super user:"
    " it could confirm events that no table has, for every gateway, and delete the topic"
)


def check_excess(
    connection: KafkaConnection, topic: TopicDescription, group: str, gateway: str, lanes: Iterable[str]
) -> Iterator[Finding]:
    """Report rights beyond the agent's needs; `group` is the receipts' group."""
    try:
        question = connection.admin.describe_cluster(**WITH_RIGHTS)
        if AclOperation.ALTER in (client.wait_for(question, threading.Event()).authorized_operations or ()):
            # The right to grant all others; it includes Describe, without which brokers state nothing of the cluster.
            yield warning(_CHECK, EVERYTHING, f"give the brokers ACLs, and each gateway a login of its own: {_PAGE}")
            return
        findings = [
            *_topics(connection.admin, topic),
            *_receipts(connection.admin, group),
            *_foreign_groups(connection.admin, gateway, lanes),
        ]
    except KafkaException as error:
        yield warning(_CHECK, f"rights that the agent does not need: not checked: {client.describe(error)}")
        return
    yield from findings or [fine(_CHECK, "no right of this login was found that the agent does not need")]


def _excess(stated: Iterable[Enum] | None, needed: Collection[Enum]) -> str:
    """Return the names of the rights beyond the needed ones; none where the service states no rights."""
    return ", ".join(sorted(one.name for one in stated or () if one not in needed))


def _topics(admin: AdminClient, topic: TopicDescription) -> Iterator[Finding]:
    if excess := _excess(topic.authorized_operations, _ON_TOPIC):
        yield warning(_CHECK, f"topic {topic.name}: this login has {excess}", f"take it away: {_PAGE}")
    visible = admin.list_topics(timeout=client.OPENING_SECONDS_MAX).topics
    others = sorted(name for name in visible if name != topic.name)[:_ASKED_MAX]
    if not others:
        return
    questions = admin.describe_topics(TopicCollection(others), **WITH_RIGHTS)
    deadline = client.answer_deadline()
    rights = {
        name: client.wait_for(question, threading.Event(), deadline).authorized_operations
        for name, question in questions.items()
    }
    if changed := [name for name, allowed in rights.items() if _excess(allowed, _READING)]:
        text = f"this login may write to other topics, or change them: {_listed(changed)}"
        yield warning(_CHECK, text, f"grant it the topic {topic.name} alone: {_PAGE}")


def _receipts(admin: AdminClient, group: str) -> Iterator[Finding]:
    if excess := _excess(read_group_rights(admin, group), _DESCRIBING):
        text = f"group {group}: this login has {excess}: it could confirm events that no table has, for every gateway"
        yield warning(_CHECK, text, f"take it away, DESCRIBE is enough: {_PAGE}")


def _foreign_groups(admin: AdminClient, gateway: str, lanes: Iterable[str]) -> Iterator[Finding]:
    """Report groups of other gateways that this login may commit to."""
    question = admin.list_consumer_groups(request_timeout=client.OPENING_SECONDS_MAX)
    visible = {one.group_id for one in client.wait_for(question, threading.Event()).valid or ()}
    own = {GROUP_PREFIX + transactional_id(gateway, lane) for lane in ("", *lanes)}
    others = sorted(name for name in visible - own if name.startswith(GROUP_PREFIX))[:_ASKED_MAX]
    foreign = [name for name in others if _may_commit(admin, name)]
    if _may_commit(admin, GROUP_PREFIX + no_gateway(gateway)):
        foreign.append(f"{GROUP_PREFIX}{gateway}*")
    if foreign:
        text = f"this login may commit to groups of other gateways, and stop these: {_listed(foreign)}"
        yield warning(_CHECK, text, f"give each gateway a login of its own, and no shorter prefix: {_PAGE}")


def _may_commit(admin: AdminClient, group: str) -> bool:
    return AclOperation.READ in (read_group_rights(admin, group) or ())


def no_gateway(name: str) -> str:
    """Return the name of no gateway, since it has a space: only rights by a prefix, or on all names, cover it."""
    return f"{name} doctor"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


RETRY_SECONDS: Final = 0.2


def read_group_rights(admin: AdminClient, group: str) -> frozenset[AclOperation] | None:
    """Return the rights on a group, whether it exists or not; None where the service does not state them.

    Raise KafkaException where no broker answers.
    """
    deadline = time.monotonic() + client.OPENING_SECONDS_MAX
    while True:
        try:
            question = admin.describe_consumer_groups([group], **WITH_RIGHTS)[group]
            stated = client.wait_for(question, threading.Event()).authorized_operations
            return frozenset(stated) if stated else None  # without any right there is an error
        except KafkaException as error:
            if client.code_of(error) == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return frozenset()
            if client.code_of(error) not in client.MOVING_CODES or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)


_REFUSED_MS: Final = 2_147_483_000
"""A time limit that brokers refuse once they have checked the rights, before they change anything.

The default of their transaction.max.timeout.ms is 900,000. A broker that allows this limit gives the id to this
producer, and an agent that had it stops sending until its next start.
"""


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
    if _is_refused(settings, no_gateway(gateway)) is None:
        text = "this login may use transactional ids of other gateways, and stop these"
        yield warning(_CHECK, text, f"grant it the id {gateway}, and the prefix {gateway}/ for lanes: docs/kafka.md")


def _refusal_of_id(settings: KafkaSettings, name: str) -> Finding | None:
    """Return why the agent may not begin transactions; None where it may."""
    error = _is_refused(settings, name)
    if error is None:
        return None
    if client.code_of(error) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        text = f"transactional id {name}: the agent lacks WRITE"
        return wrong(_CHECK, text, "grant WRITE on it: docs/kafka.md")
    return warning(_CHECK, f"transactional id {name}: not checked: {client.describe(error)}")


def _is_refused(settings: KafkaSettings, name: str) -> KafkaException | None:
    """Request a transactional id without taking it; return why it is refused, None where it would be granted."""
    silent = logging.getLogger(f"{__name__}.client")
    silent.disabled = True  # the client logs the refusal as a fatal error
    config = client.producer_config(settings, mode_of(settings, name).fixed)
    producer = Producer({**config, "transaction.timeout.ms": str(_REFUSED_MS)}, logger=silent)
    try:
        producer.init_transactions(client.OPENING_SECONDS_MAX)
    except KafkaException as error:
        return None if client.code_of(error) == KafkaError.INVALID_TRANSACTION_TIMEOUT else error
    return None


def _refusal_of_group(connection: KafkaConnection, name: str) -> Finding | None:
    """Return why the agent may not commit its marker, and read it; None where it may."""
    group = GROUP_PREFIX + name
    try:
        allowed = read_group_rights(connection.admin, group)
    except KafkaException as error:
        return warning(_CHECK, f"group {group}: not checked: {client.describe(error)}")
    if allowed is None or AclOperation.READ in allowed:
        return None
    return wrong(_CHECK, f"group {group}: the agent lacks READ", "grant READ on it: docs/kafka.md")
