"""The agent as a process that a test starts and that is killed at its end."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from simulators.services.process import Command, Process


@contextmanager
def agent_process(configuration: Path, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Yield an agent that is not started yet; its log is beside the configuration file."""
    command = (sys.executable, "-m", "agent.cli.main", "run", "--config", str(configuration))
    process = Process(Command("agent", command, configuration.parent / "agent.log", environment=environment or {}))
    try:
        yield process
    finally:
        process.kill()
