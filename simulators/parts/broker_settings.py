"""Write the settings of a single-node Kafka broker."""

from __future__ import annotations

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


def server_properties(port: int, controller_port: int, data: Path) -> str:
    """Return the settings of a broker that is its own controller (KRaft) and keeps every record's only copy."""
    return "".join(f"{name}={value}\n" for name, value in _settings(port, controller_port, data).items())


def logging_properties() -> str:
    """Return the settings of Log4j: all to standard output."""
    return _LOGGING


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
        # One node: its own topics cannot ask for more copies than there are.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # Small, so that it starts fast and fits the heap.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 1,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        "group.initial.rebalance.delay.ms": 0,
        # There is nobody to hand the partitions over to.
        "controlled.shutdown.enable": "false",
        # A killed broker may come back once its old session is over.
        "broker.session.timeout.ms": 2_000,
        "broker.heartbeat.interval.ms": 500,
    }
