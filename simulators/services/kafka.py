"""Run a single-node Kafka broker as a local process, to be stopped, killed, paused and started again at will."""

from __future__ import annotations

import logging
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from contract import topics
from simulators.services import broker_settings, ports
from simulators.services.broker_settings import Listener, Node
from simulators.services.error import ServiceError
from simulators.services.install import jars, java
from simulators.services.process import Command, Process

HEAP_MEGABYTES = 256
START_SECONDS_MAX = 120.0
START_ATTEMPTS_MAX = 3
FORMAT_SECONDS_MAX = 120.0
ADMIN_SECONDS_MAX = 120.0

logger = logging.getLogger(__name__)


class Broker:
    """A Kafka broker with its data, settings and log under one folder.

    Records that it has acknowledged survive `kill` and the next `start`, which uses the same ports and data.
    """

    def __init__(
        self,
        folder: Path,
        second: Listener | None = None,
        scram: Mapping[str, str] | None = None,
        node: Node | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Prepare a broker; `scram` names users of SASL/SCRAM-SHA-512 with their passwords.

        `properties` are settings of the broker beside ours, or instead of them.
        """
        self._folder = folder.absolute()
        self._node = node
        self._second = second
        self._scram = scram or {}
        self._properties = properties or {}
        self._port, self._controller_port = ports.free(2) if node is None else node.own_ports
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Its data is of no use to anyone after this: a clean stop would only cost time.
        self.kill()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, the same after each start."""
        return f"127.0.0.1:{self._port}"

    @property
    def data_folder(self) -> Path:
        """Where the partitions lie, a folder each, named `<topic>-<number>`."""
        return self._folder / "data"

    @property
    def log_file(self) -> Path:
        """The broker's log, of all its starts."""
        return self._folder / "broker.log"

    @property
    def process(self) -> Process:
        """The broker's process; before the first start an error."""
        if self._process is None:
            raise ServiceError("kafka: not started yet")
        return self._process

    @property
    def running(self) -> bool:
        """Whether the broker's process lives."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start the broker, formatting its storage first where that is new, and return once it answers."""
        if self._process is None:
            self._process = self._first_start()
        else:
            self._start_and_wait(self._process)
        logger.info("kafka: answers bootstrap_servers=%s pid=%d", self.bootstrap_servers, self._process.pid)

    def stop(self) -> None:
        """End the broker by SIGTERM."""
        self.process.terminate()

    def kill(self) -> None:
        """End the broker by SIGKILL; a broker that does not run is no error."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Pause the broker, its connections open (SIGSTOP)."""
        self.process.pause()

    def resume(self) -> None:
        """Resume the broker (SIGCONT)."""
        self.process.resume()

    def create_topics(self, *names: str, partitions: int = topics.PARTITIONS) -> None:
        """Create the topics with the settings that the promise needs; those that exist are left as they are."""
        config = topics.settings(replicas=1)
        wanted = [NewTopic(name, partitions, replication_factor=1, config=config) for name in names or (topics.EVENTS,)]
        admin = self._admin()  # held until the answers are there: they die with it
        answers: Mapping[str, Future[None]] = admin.create_topics(wanted, operation_timeout=ADMIN_SECONDS_MAX)
        for name, answer in answers.items():
            try:
                answer.result(timeout=ADMIN_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ServiceError(f"kafka: cannot create topic {name}: {error}") from error

    def _first_start(self) -> Process:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self._write_settings()
            self._format_storage()
            process = Process(self._command())
            try:
                self._start_and_wait(process)
            except ServiceError:
                # Somebody else took the port between our look and the broker's: take others.
                if (
                    attempt == START_ATTEMPTS_MAX
                    or self._node is not None
                    or "Address already in use" not in process.log()
                ):
                    raise
                self._port, self._controller_port = ports.free(2)
            else:
                return process
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _start_and_wait(self, process: Process) -> None:
        process.start()
        try:
            process.wait_for_log("Kafka Server started", START_SECONDS_MAX)
            process.wait_until(self._listens, f"listens on {self.bootstrap_servers}", START_SECONDS_MAX)
            self._admin().list_topics(timeout=ADMIN_SECONDS_MAX)
        except KafkaException as error:
            process.kill()
            raise ServiceError(f"kafka: does not answer on {self.bootstrap_servers}: {error}") from error
        except BaseException:  # a Ctrl-C, too: nobody holds this process yet
            process.kill()
            raise

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def _write_settings(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = broker_settings.server_properties(
            self._port, self._controller_port, self.data_folder, self._second, self._node
        )
        own = "".join(f"{name}={value}\n" for name, value in self._properties.items())
        self._properties_file.write_text(settings + own)  # of a name that comes twice the last one counts
        self._logging_file.write_text(broker_settings.logging_properties())

    def _format_storage(self) -> None:
        cluster = new_cluster() if self._node is None else self._node.cluster
        # `=`, since an id with a leading dash would read as an option.
        arguments = ["format", "--ignore-formatted", f"--cluster-id={cluster}", f"--config={self._properties_file}"]
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
        classpath = ":".join(str(jar) for jar in jars.paths(jars.BROKER))
        options = (f"-Xmx{HEAP_MEGABYTES}m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={self._logging_file}")
        return (str(java.require()), *options, "-cp", classpath, main_class, *arguments)

    @property
    def _properties_file(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _logging_file(self) -> Path:
        return self._folder / "log4j2.properties"


def new_cluster() -> str:
    """Return an id for a cluster that is to be."""
    return urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
