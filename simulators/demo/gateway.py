"""The agent as the demo runs it: the installed command, its configuration, and what it says of itself."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from simulators.demo.error import DemoError
from simulators.parts import ports
from simulators.parts.process import Command, Process

GATEWAY_ID = "demo"
READY = "agent=ready"
STATUS_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """The part of `oncegate status` that the demo looks at."""

    accepted: int
    duplicates: int
    new: int
    forwarded: int

    @property
    def outbox(self) -> int:
        """Events whose receipt has not come yet."""
        return self.new + self.forwarded


class Gateway:
    """An agent on a port of its own, to be killed and started again on the same state."""

    def __init__(self, folder: Path, log_file: Path, bootstrap_servers: str) -> None:
        (port,) = ports.free(1, socket.SOCK_DGRAM)
        self.address = ("127.0.0.1", port)
        self._command = str(Path(sys.executable).with_name("oncegate"))
        self._config = folder / "oncegate.toml"
        folder.mkdir(parents=True)
        self._config.write_text(_config(folder / "state", self.address, bootstrap_servers))
        self.process = Process(
            Command("agent", (self._command, "run", "--config", str(self._config)), log_file, folder)
        )

    def start(self) -> None:
        """Start the agent, and return once it takes events."""
        self.process.start()
        self.process.wait_for_log(READY)

    def status(self) -> GatewayStatus:
        """Ask the store, whether the agent runs or not."""
        done = subprocess.run(
            [self._command, "status", "--json", "--config", str(self._config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=STATUS_SECONDS_MAX,
        )
        if done.returncode != 0:
            raise DemoError(f"oncegate status ended with {done.returncode}: {done.stderr.strip()}")
        status = json.loads(done.stdout)
        events = status["events"]
        return GatewayStatus(status["accepted"], status["duplicates"], events["new"], events["forwarded"])


def _config(state_dir: Path, address: tuple[str, int], bootstrap_servers: str) -> str:
    # A TOML basic string is written as a JSON string is.
    return f"""\
[gateway]
id = "{GATEWAY_ID}"
state_dir = {json.dumps(str(state_dir))}
clock = "trusted"

[coap]
bind = "{address[0]}:{address[1]}"

[http]
bind = "127.0.0.1:0"

[kafka]
bootstrap_servers = "{bootstrap_servers}"

[receipts]
poll_seconds = 1
"""
