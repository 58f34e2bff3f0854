"""A running agent, and commands beside it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

Completed = subprocess.CompletedProcess[str]


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
