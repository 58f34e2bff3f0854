"""The settings of a Kafka broker, alone or in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c{1})%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
"""


_LOGGING_LOG4J_1 = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %m (%c{1})%n
"""


@dataclass(frozen=True, slots=True)
class Listener:
    """A further listener of a broker, with other security or behind a proxy."""

    protocol: str
    """Kafka's name of the security protocol, such as `SASL_SSL`."""
    port: int
    advertised_port: int
    properties: Mapping[str, object] = field(default_factory=dict)
    name: str = "SECOND"
    """Kafka's name of the listener, unique for the broker."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's place in a cluster."""

    number: int
    """The node id, counted from 1."""
    cluster: str
    """The cluster's id."""
    ports: Sequence[tuple[int, int]]
    """The client port and the controller port of each node."""

    @property
    def own_ports(self) -> tuple[int, int]:
        """The ports of this node."""
        return self.ports[self.number - 1]

    def properties(self) -> dict[str, object]:
        """Return the settings that differ from a single broker's: three replicas, two of them in sync."""
        voters = (f"{number}@127.0.0.1:{port}" for number, (_, port) in enumerate(self.ports, 1))
        copies, in_sync = len(self.ports), len(self.ports) - 1
        return {
            "node.id": self.number,
            "controller.quorum.voters": ",".join(voters),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "min.insync.replicas": in_sync,
            "unclean.leader.election.enable": "false",
            # Three brokers share a few cores: a slow one must not count as failed.
            "broker.session.timeout.ms": 9_000,
            "broker.heartbeat.interval.ms": 2_000,
            "controller.quorum.fetch.timeout.ms": 8_000,
            "controller.quorum.election.timeout.ms": 4_000,
        }


def server_properties(
    port: int, controller_port: int, data: Path, others: Sequence[Listener] = (), node: Node | None = None
) -> str:
    """Return the settings of a combined broker and controller (KRaft), alone or in a cluster."""
    settings = _settings(port, controller_port, data) | ({} if node is None else node.properties())
    for other in others:
        settings["listeners"] = f"{settings['listeners']},{other.name}://127.0.0.1:{other.port}"
        advertised = f"{other.name}://127.0.0.1:{other.advertised_port}"
        settings["advertised.listeners"] = f"{settings['advertised.listeners']},{advertised}"
        protocols = settings["listener.security.protocol.map"]
        settings["listener.security.protocol.map"] = f"{protocols},{other.name}:{other.protocol}"
        settings |= other.properties
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def logging_properties(*, log4j_1: bool = False) -> str:
    """Return the Log4j settings: everything to standard output."""
    return _LOGGING_LOG4J_1 if log4j_1 else _LOGGING


def _settings(port: int, controller_port: int, data: Path) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        # One node: the internal topics can have one replica only.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Small, for a fast start and a small heap.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 1,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        "group.initial.rebalance.delay.ms": 0,
        # There is no other broker to take over the partitions.
        "controlled.shutdown.enable": "false",
        # A killed broker can register again only after its old session has expired.
        "broker.session.timeout.ms": 2_000,
        "broker.heartbeat.interval.ms": 500,
    }
