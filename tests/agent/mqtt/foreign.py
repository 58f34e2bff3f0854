"""MQTT brokers of other makers: NATS with JetStream, which serves MQTT 3.1.1 only, and ActiveMQ Artemis."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agent import programs
from simulators.services import ports
from simulators.services.install import jars, java
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

START_SECONDS_MAX = 60.0


class ForeignBroker(ProcessService):
    """A broker that syncs before each PUBACK; its settings, data and log are below one folder."""

    def __init__(self, port: int, settings_file: Path, settings: str, *command: str) -> None:
        self.port = port
        self._file, self._settings = settings_file, settings
        self.process = Process(Command(command[0], command, settings_file.parent / "broker.log"))

    def start(self) -> None:
        """Start the broker and return once it listens."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._settings)
        self.process.start()
        self.process.wait_for_port(self.port, START_SECONDS_MAX)


def nats(folder: Path) -> ForeignBroker:
    """Return a NATS server; skip the test where it cannot be built."""
    port, own = ports.free(2)
    program, file = programs.nats_server(), folder / "nats.conf"
    if program is None:
        pytest.skip("NATS cannot be built here")
    settings = (
        f'server_name: "broker"\nlisten: "127.0.0.1:{own}"\nmqtt {{ listen: "127.0.0.1:{port}" }}\n'
        f'jetstream {{ store_dir: "{folder / "state"}", sync_interval: always }}\n'
    )
    return ForeignBroker(port, file, settings, str(program), "-c", str(file))


def artemis(folder: Path) -> ForeignBroker:
    """Return an ActiveMQ Artemis, which takes the journal's path from the folder of its settings."""
    (port,) = ports.free(1)
    settings = (
        '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><security-enabled>false</security-enabled>'
        f'<acceptors><acceptor name="mqtt">tcp://127.0.0.1:{port}?protocols=MQTT</acceptor></acceptors>'
        "<journal-type>NIO</journal-type></core></configuration>"
    )
    classpath = ":".join(map(str, jars.paths(jars.ARTEMIS)))
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath)
    main = "org.apache.activemq.artemis.core.server.embedded.Main"
    return ForeignBroker(port, folder / "etc/broker.xml", settings, str(java.require()), *options, main, str(folder))
