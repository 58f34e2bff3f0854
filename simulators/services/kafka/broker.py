"""A Kafka broker as a local process."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from contract import topics
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.install import jars, java
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

HEAP_MEGABYTES = 256
START_SECONDS_MAX = 120.0
START_ATTEMPTS_MAX = 3
FORMAT_SECONDS_MAX = 120.0
ADMIN_SECONDS_MAX = 120.0

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
"""Log4j's settings: everything to standard output."""


class Broker(ProcessService):
    """A Kafka broker with its data, settings and log under one folder.

    Acknowledged records survive `kill` and the next `start`, which uses the same ports and data.
    """

    def __init__(
        self,
        folder: Path,
        *listeners: Listener,
        scram: Mapping[str, str] | None = None,
        node: Node | None = None,
        properties: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
        jar_set: str = jars.BROKER,
    ) -> None:
        """Prepare a broker with `listeners` beside its own; `scram` maps users of SASL/SCRAM-SHA-512 to passwords.

        `properties` are broker settings that are added to the default ones or replace them; `jar_set` selects the
        version of Kafka.
        """
        self._folder = folder.absolute()
        self._node = node or _alone()
        self._listeners = listeners
        self._java_options = java_options
        self._jar_set = jar_set
        self._scram = scram or {}
        self._properties = properties or {}
        self._has_started = False
        self.process = Process(self._command())

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap server for clients, the same after each start."""
        return f"127.0.0.1:{self._node.own_ports[0]}"

    @property
    def data_folder(self) -> Path:
        """The folder of the partitions, one subfolder each, named `<topic>-<number>`."""
        return self._folder / "data"

    @property
    def log_file(self) -> Path:
        """The broker's log, across all starts."""
        return self._folder / "broker.log"

    def start(self) -> None:
        """Start the broker and return once it answers; the first start formats its storage, where that is new."""
        if self._has_started:
            self._start_and_wait()
        else:
            self._start_first()
            self._has_started = True

    def create_topics(self, *names: str, partitions: int = topics.PARTITIONS) -> None:
        """Create the topics with the settings that the guarantees need; leave existing ones unchanged."""
        replicas = len(self._node.ports)
        wanted = [
            NewTopic(name, partitions, replication_factor=replicas, config=topics.settings(replicas))
            for name in names or (topics.EVENTS,)
        ]
        admin = self._admin()  # kept until the answers have arrived: they are lost with it
        answers: Mapping[str, Future[None]] = admin.create_topics(wanted, operation_timeout=ADMIN_SECONDS_MAX)
        for name, answer in answers.items():
            try:
                answer.result(timeout=ADMIN_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ServiceError(f"kafka: cannot create topic {name}: {error}") from error

    def _start_first(self) -> None:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self._write_settings()
            if not (self.data_folder / "meta.properties").exists():
                self._format_storage()
            try:
                self._start_and_wait()
            except ServiceError:
                is_last = attempt == START_ATTEMPTS_MAX or len(self._node.ports) > 1
                if is_last or "Address already in use" not in self.process.log():
                    raise
                # Another process took a port after the check: choose others.
                self._node = _alone()
            else:
                return

    def _start_and_wait(self) -> None:
        self.process.start()
        try:
            self.process.wait_for_log("Kafka Server started", START_SECONDS_MAX)
            self.process.wait_for_port(self._node.own_ports[0], START_SECONDS_MAX)
            self._admin().list_topics(timeout=ADMIN_SECONDS_MAX)
        except KafkaException as error:
            self.kill()
            raise ServiceError(f"kafka: does not answer on {self.bootstrap_servers}: {error}") from error
        except BaseException:  # includes an interrupt
            self.kill()
            raise

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def _write_settings(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self._all_properties().items())
        self._properties_file.write_text("".join(lines))
        self._logging_file.write_text(_LOGGING_LOG4J_1 if self._jar_set == jars.BROKER_3_9 else _LOGGING)

    def _all_properties(self) -> dict[str, object]:
        settings = {"log.dirs": self.data_folder, **self._node.properties()}
        for other in self._listeners:
            settings["listeners"] = f"{settings['listeners']},{other.name}://127.0.0.1:{other.port}"
            advertised = f"{other.name}://127.0.0.1:{other.advertised_port}"
            settings["advertised.listeners"] = f"{settings['advertised.listeners']},{advertised}"
            protocols = settings["listener.security.protocol.map"]
            settings["listener.security.protocol.map"] = f"{protocols},{other.name}:{other.protocol}"
            settings |= other.properties
        return {**settings, **self._properties}

    def _format_storage(self) -> None:
        # `=`, since an id with a leading dash would be parsed as an option.
        arguments = ["format", f"--cluster-id={self._node.cluster}", f"--config={self._properties_file}"]
        for user, password in self._scram.items():
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=FORMAT_SECONDS_MAX,
        )
        if done.returncode != 0:
            raise ServiceError(
                f"kafka: formatting {self._folder}: status {done.returncode}\n{done.stdout}{done.stderr}"
            )

    def _command(self) -> Command:
        return Command("kafka", self._java("kafka.Kafka", str(self._properties_file)), self.log_file, self._folder)

    def _java(self, main_class: str, *arguments: str) -> tuple[str, ...]:
        classpath = ":".join(str(jar) for jar in jars.paths(self._jar_set))
        logging_option = (
            f"-Dlog4j.configuration={self._logging_file.as_uri()}"
            if self._jar_set == jars.BROKER_3_9
            else f"-Dlog4j2.configurationFile={self._logging_file}"
        )
        options = (f"-Xmx{HEAP_MEGABYTES}m", "-XX:+UseSerialGC", logging_option)
        return (str(java.require()), *options, *self._java_options, "-cp", classpath, main_class, *arguments)

    @property
    def _properties_file(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _logging_file(self) -> Path:
        return self._folder / "log4j2.properties"


def new_cluster() -> str:
    """Return a new cluster id."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


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
    """A broker's place in a cluster, which may have no other one."""

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
        """Return the settings of a combined broker and controller (KRaft); of several nodes all but one are in sync."""
        voters = (f"{number}@127.0.0.1:{port}" for number, (_, port) in enumerate(self.ports, 1))
        port, controller_port = self.own_ports
        copies, in_sync = len(self.ports), max(1, len(self.ports) - 1)
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            # Small, for a fast start and a small heap.
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.num.partitions": 1,
            "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
            "group.initial.rebalance.delay.ms": 0,
            # A node that ends does not wait for others to take over its partitions.
            "controlled.shutdown.enable": "false",
        }
        if copies == 1:
            # A killed broker can register again only after its old session has expired.
            return {**settings, "broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 500}
        return {
            **settings,
            "min.insync.replicas": in_sync,
            "unclean.leader.election.enable": "false",
            # Three brokers share a few cores: a slow one must not count as failed.
            "broker.session.timeout.ms": 9_000,
            "broker.heartbeat.interval.ms": 2_000,
            "controller.quorum.fetch.timeout.ms": 8_000,
            "controller.quorum.election.timeout.ms": 4_000,
        }


def _alone() -> Node:
    """Return the place of a broker without others."""
    port, controller_port = ports.free(2)
    return Node(1, new_cluster(), ((port, controller_port),))
