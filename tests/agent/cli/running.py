"""A running agent, and commands beside it."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Completed = subprocess.CompletedProcess[str]
Run = Callable[..., tuple[int, str, str]]
"""Runs a command in this process; returns its status, output and messages."""


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent without Kafka, and its addresses."""

    configuration: Path
    coap_port: int
    http_port: int

    def command(self, *arguments: str) -> list[str]:
        """Return a command line with the agent's configuration."""
        return [sys.executable, "-m", "agent.cli.main", "--config", str(self.configuration), *arguments]

    def oncegate(self, *arguments: str, text: str | None = None) -> Completed:
        """Run a command to its end."""
        command = self.command(*arguments)
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)

    def on_terminal(self, *arguments: str) -> str:
        """Return what a command prints on a terminal, without colours."""
        leader, follower = pty.openpty()
        environment = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
        with subprocess.Popen(self.command(*arguments), stdout=follower, stderr=follower, env=environment):
            os.close(follower)
            text = b""
            try:
                while piece := os.read(leader, 65_536):
                    text += piece
            except OSError:  # Linux: the other side is closed
                pass
            os.close(leader)
        return text.decode()
