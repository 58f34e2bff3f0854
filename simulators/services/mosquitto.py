"""A mosquitto broker (MQTT) as a local process."""

import os
from collections.abc import Sequence
from pathlib import Path

from simulators.services import ports
from simulators.services.install import programs
from simulators.services.process import Command, Process
from simulators.services.service import ProcessService

START_SECONDS_MAX = 60.0
_SETTINGS = (
    "persistence true",
    "autosave_interval 1",
    "max_queued_messages 0",
    "max_packet_size 268435455",
)
"""With these a killed broker loses only messages that it acknowledged within the last second.

The size is the protocol's; from mosquitto 2.1 on the default is two million bytes.
"""


class Mosquitto(ProcessService):
    """A broker with its data, settings and log under one folder; `settings` are lines of mosquitto.conf."""

    def __init__(self, folder: Path, settings: Sequence[str] = ("allow_anonymous true",)) -> None:
        self._folder = folder.absolute()
        (self.port,) = ports.free(1)
        self._settings = tuple(settings)
        command = (programs.require("mosquitto"), "-c", str(self._folder / "mosquitto.conf"))
        self.process = Process(Command("mosquitto", command, self._folder / "mosquitto.log"))

    def start(self) -> None:
        """Start the broker and return once it listens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Started by root, it would switch to a user that cannot write into the folder.
        user = ["user root"] if os.geteuid() == 0 else []
        data = [f"persistence_location {self._folder}/", "log_dest stderr", "connection_messages true"]
        lines = [*user, *_SETTINGS, *data, f"listener {self.port} 127.0.0.1", *self._settings]
        (self._folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self.process.start()
        self.process.wait_for_port(self.port, START_SECONDS_MAX)
