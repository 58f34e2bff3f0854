"""Run a mosquitto broker (MQTT) as a local process, to be stopped, killed, paused and started again at will."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from simulators.services import ports
from simulators.services.install import programs
from simulators.services.process import Command, Process

START_SECONDS_MAX = 60.0
_SETTINGS = (
    "persistence true",
    "autosave_interval 1",
    "max_queued_messages 0",
)
"""So that a broker loses nothing that it has acknowledged, but what came in the last second before a kill."""


class Mosquitto:
    """A broker with its data, settings and log under one folder; `settings` are lines of mosquitto.conf."""

    def __init__(self, folder: Path, settings: Sequence[str] = ("allow_anonymous true",)) -> None:
        self._folder = folder.absolute()
        (self.port,) = ports.free(1)
        self._settings = tuple(settings)
        configuration = self._folder / "mosquitto.conf"
        self.process = Process(
            Command(
                "mosquitto",
                (programs.require("mosquitto"), "-c", str(configuration)),
                self._folder / "mosquitto.log",
            )
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the broker, and return once it listens."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "mosquitto.conf").write_text("\n".join(self._lines()) + "\n")
        self.process.start()
        self.process.wait_until(self._listens, f"listens on port {self.port}", START_SECONDS_MAX)

    def stop(self) -> None:
        """End the broker by SIGTERM: it saves what it holds."""
        self.process.terminate()

    def kill(self) -> None:
        """End the broker by SIGKILL; one that does not run is no error."""
        self.process.kill()

    def pause(self) -> None:
        """Pause the broker, its connections open (SIGSTOP)."""
        self.process.pause()

    def resume(self) -> None:
        """Resume the broker (SIGCONT)."""
        self.process.resume()

    def _lines(self) -> list[str]:
        # As root it would become another user, who cannot write into our folder.
        user = ["user root"] if os.geteuid() == 0 else []
        data = [f"persistence_location {self._folder}/", "log_dest stderr", "connection_messages true"]
        return [*user, *_SETTINGS, *data, f"listener {self.port} 127.0.0.1", *self._settings]

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
