"""A running agent, and commands beside it."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agent.cli import main
from agent.cli.api import Api

Completed = subprocess.CompletedProcess[str]
Run = Callable[..., tuple[int, str, str]]
"""Runs a command in this process; returns its status, output and messages."""


def here(*arguments: str, text: str | None = None, terminal: bool = False) -> Completed:
    """Run a command to its end, in this process; its output may pass for a terminal."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    out.isatty = lambda: terminal  # type: ignore[method-assign]
    given = sys.stdin if text is None else io.TextIOWrapper(io.BytesIO(text.encode()))
    with patch.multiple(sys, argv=["oncegate", *arguments], stdin=given), redirect_stdout(out), redirect_stderr(err):
        try:
            main.main()
        except SystemExit as end:
            status = int(end.code or 0)
    out.flush()
    err.flush()
    read = [one.buffer.getvalue().decode() for one in (out, err)]
    return Completed(arguments, status, *read)


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent without Kafka, and its addresses."""

    configuration: Path
    coap_port: int
    http_port: int

    @property
    def api(self) -> Api:
        return Api(f"http://127.0.0.1:{self.http_port}")

    def post(self, device: str, *ids: int) -> None:
        for number in ids:
            event = {"device": device, "id": number, "data": {"value": 1}, "units": {"value": "Cel"}}
            assert self.api.post("/api/v1/events", json.dumps(event).encode(), "application/json").code == 200

    def shown(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what a command prints for programs."""
        done = self.oncegate(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "agent.cli.main", "--config", str(self.configuration), *arguments]

    def oncegate(self, *arguments: str, text: str | None = None, terminal: bool = False) -> Completed:
        """Run a command to its end, in this process."""
        return here("--config", str(self.configuration), *arguments, text=text, terminal=terminal)
