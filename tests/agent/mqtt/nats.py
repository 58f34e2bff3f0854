"""NATS with JetStream as an MQTT broker: a foreign one, which serves MQTT 3.1.1 only."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agent import programs
from simulators.services import ports
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

START_SECONDS_MAX = 60.0


class Nats(ProcessService):
    """A broker that keeps its sessions below one folder, and syncs before each PUBACK."""

    def __init__(self, folder: Path) -> None:
        self.port, own = ports.free(2)
        folder.mkdir(parents=True)
        settings = folder / "nats.conf"
        settings.write_text(
            f'server_name: "broker"\nlisten: "127.0.0.1:{own}"\nmqtt {{ listen: "127.0.0.1:{self.port}" }}\n'
            f'jetstream {{ store_dir: "{folder / "state"}", sync_interval: always }}\n'
        )
        program = programs.nats_server()
        if program is None:
            pytest.skip("NATS cannot be built here")
        self.process = Process(Command("nats", (str(program), "-c", str(settings)), folder / "nats.log"))

    def start(self) -> None:
        """Start the broker and return once it listens."""
        self.process.start()
        self.process.wait_for_port(self.port, START_SECONDS_MAX)
