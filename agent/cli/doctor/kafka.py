"""Checks Kafka: its reachability, the agent's rights, the topic's settings."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks them
    AclOperation,
    AdminClient,
    ConfigResource,
    TopicDescription,
)

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.config.settings import KafkaSettings
from agent.forward.errors import UnreachableError, UnsupportedError
from agent.forward.kafka.client import OPENING_SECONDS_MAX, LastError, code_of, describe, open_admin, wait_for
from agent.forward.kafka.connect import check_reachable
from agent.forward.kafka.topic import admin_command, create_command, topic_id
from agent.status import GatewayStatus
from agent.terminal import count
from contract import topics

_NEEDED: Final = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.READ)
"""READ for the truncation check after a change of leader, and for reading back what was committed exactly once."""
WITH_RIGHTS: Final[dict[str, Any]] = {"include_authorized_operations": True, "request_timeout": OPENING_SECONDS_MAX}
"""Has a description state the rights of the agent's login."""
MESSAGE_BYTES_MIN: Final = 1_000_000
SIZE_DEFAULT: Final = 1_048_588
"""Kafka's own default of max.message.bytes."""


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """The admin client with its settings and its last error."""

    settings: KafkaSettings
    admin: AdminClient
    errors: LastError

    @classmethod
    def open(cls, settings: KafkaSettings) -> Self:
        """Open the client; raise KafkaSettingsError."""
        errors = LastError()
        return cls(settings, open_admin(settings, errors), errors)


def check_broker(connection: KafkaConnection) -> tuple[Finding, TopicDescription | None]:
    """Check that a broker answers and the topic exists; return the topic, None where it cannot be read."""
    settings = connection.settings
    try:
        check_reachable(settings.bootstrap_servers, threading.Event())
    except UnreachableError as error:
        return wrong("broker", str(error), "check kafka.bootstrap_servers, network and firewall"), None
    question = connection.admin.describe_topics(TopicCollection([settings.topic]), **WITH_RIGHTS)[settings.topic]
    try:
        topic = wait_for(question, threading.Event())
    except KafkaException as error:
        return _unreached(connection, error), None
    try:
        topic_id(topic)
    except UnsupportedError as error:
        return wrong("broker", str(error), "see docs/kafka.md, Services"), None
    return fine("broker", f"{settings.bootstrap_servers} answers; topic {settings.topic} is there"), topic


def _unreached(connection: KafkaConnection, error: KafkaException) -> Finding:
    settings = connection.settings
    if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
        hint = create_command(settings, len(connection.admin.list_topics(timeout=OPENING_SECONDS_MAX).brokers))
        return wrong("topic", f"topic {settings.topic} does not exist, or the agent may not describe it", hint)
    if code_of(error) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        text = f"the agent may not describe topic {settings.topic}"
        return wrong("topic", text, "grant DESCRIBE, READ and WRITE on it")
    connection.admin.poll(0)  # the client reports the cause only then
    reason = connection.errors.text or describe(error)
    file = settings.properties_file
    login = "kafka.properties" if file is None else f"kafka.properties_file ({file})"
    hint = _EXPIRY if "certificate" in reason else f"check address, firewall and {login}"
    return wrong("broker", f"{settings.bootstrap_servers}: {reason}", hint)


_EXPIRY: Final = (
    "check whether a certificate has expired, the agent's (openssl x509 -noout -enddate -in FILE) or the broker's"
    " (openssl s_client -connect HOST:PORT | openssl x509 -noout -enddate);"
    " and whether ssl.ca.location is its authority"
)
"""For an expired certificate the client and a Java broker report only that it cannot be verified."""


def count_brokers(connection: KafkaConnection) -> int:
    """Return how many brokers the cluster has; 0 where that is unknown."""
    try:
        return len(connection.admin.list_topics(connection.settings.topic, OPENING_SECONDS_MAX).brokers)
    except KafkaException:
        return 0


def check_stopped(status: GatewayStatus | None) -> Iterator[Finding]:
    """Report why nothing is forwarded until the next start."""
    if status is not None and status.forwarding_stopped:
        hint = "remove the cause, then: systemctl restart oncegate"
        yield wrong("forwarding", f"stopped: {status.forwarding_stopped}", hint)


def check_oversized(settings: KafkaSettings, status: GatewayStatus | None) -> Iterator[Finding]:
    """Report events held because Kafka refuses their size."""
    if status is None or not status.oversized:
        return
    size = status.oversized_bytes or 0
    needed = max(2 * size, SIZE_DEFAULT)
    change = f"--entity-type topics --entity-name {settings.topic} --add-config max.message.bytes={needed}"
    command = admin_command("kafka-configs.sh", settings)
    hint = f"{command} --alter {change}; if it already exceeds {size}: message.max.bytes in kafka.properties"
    text = f"{count(status.oversized, 'event')} refused for their size, the smallest of {size:,} bytes"
    yield wrong("oversized", f"{text}: given up once refused for kafka.oversized_after", hint)


def check_rights(topic: TopicDescription) -> Iterator[Finding]:
    """Check the agent's rights on the topic."""
    allowed = topic.authorized_operations
    missing = [] if not allowed else [need.name for need in _NEEDED if need not in allowed]
    if missing:
        yield wrong("rights", f"topic {topic.name}: the agent lacks {', '.join(missing)}", "grant them: docs/kafka.md")
    else:
        yield fine("rights", f"topic {topic.name}: the agent may describe, read and write")


def check_topic(connection: KafkaConnection, topic: TopicDescription) -> Iterator[Finding]:
    """Compare the topic's layout and settings with those that the guarantees need."""
    replicas = min(len(partition.replicas) for partition in topic.partitions)
    yield from check_layout(len(topic.partitions), replicas)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name)
    question = connection.admin.describe_configs([resource], request_timeout=OPENING_SECONDS_MAX)[resource]
    try:
        entries = wait_for(question, threading.Event())
    except KafkaException as error:
        reason = describe(error)
        yield warning("topic", f"its settings cannot be read: {reason}", "grant DESCRIBE_CONFIGS on it: docs/kafka.md")
        return
    actual = {name: str(entry.value) for name, entry in entries.items()}
    yield from check_settings(connection.settings, actual, replicas)


def check_layout(partitions: int, replicas: int) -> Iterator[Finding]:
    """Check the numbers of partitions and replicas."""
    text = f"{partitions} partitions, {replicas} replicas"
    if replicas < topics.REPLICAS:
        effect = f"with fewer than {topics.REPLICAS} the loss of a broker stops the topic, or loses records"
        yield warning("topic", f"{text}: {effect}", "add replicas: kafka-reassign-partitions.sh")
    elif partitions != topics.PARTITIONS:
        yield warning("topic", f"{text}: {topics.PARTITIONS} are usual; a later change moves devices between them")
    else:
        yield fine("topic", text)


def check_settings(settings: KafkaSettings, actual: Mapping[str, str], replicas: int) -> Iterator[Finding]:
    """Check the topic's settings."""
    for name, needed in topics.settings(max(replicas, 1)).items():
        found = actual.get(name, "unknown")
        if _is_enough(name, found, needed):
            yield fine("topic", f"{name} = {found}")
            continue
        command = admin_command("kafka-configs.sh", settings)
        change = f"{command} --alter --entity-type topics --entity-name {settings.topic} --add-config {name}={needed}"
        yield wrong("topic", f"{name} = {found}, needed is {needed}: {_WHY[name]}", change)
    largest = int(actual.get("max.message.bytes", MESSAGE_BYTES_MIN))
    if largest < MESSAGE_BYTES_MIN:
        yield warning("topic", f"max.message.bytes = {largest}: a large event could be refused permanently", "raise it")


def _is_enough(name: str, found: str, needed: str) -> bool:
    if name == "retention.ms":
        return found.lstrip("-").isdigit() and (int(found) < 0 or int(found) >= int(needed))
    if name == "min.insync.replicas":
        return found.isdigit() and int(found) >= int(needed)
    return found == needed


_WHY: Final = {
    "message.timestamp.type": "otherwise Kafka refuses timestamps ahead of its clock, and deletes those of 1970",
    "cleanup.policy": "compaction deletes a device's earlier events",
    "retention.ms": "an outage of the cloud that is longer loses events",
    "min.insync.replicas": "otherwise the failure of one broker may lose acknowledged records",
    "unclean.leader.election.enable": "a leader that lags behind loses acknowledged records",
}
