"""Compare the commands of the cloud's units, as the template of their environment completes them, with the parsers."""

from pathlib import Path

import pytest

from cloud.cli.commands import parse

UNITS = Path(__file__).resolve().parents[3] / "systemd"


@pytest.mark.parametrize("command", ["cloud", "audit", "maintenance"])
def test_a_unit_starts_a_command_that_is_accepted(command: str) -> None:
    """Expand the variables as systemd does: each is split at spaces, and an empty one is no argument."""
    lines = (UNITS / "cloud.env.example").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    unit = (UNITS / f"oncegate-{command}.service").read_text()
    [start] = [line for line in unit.splitlines() if line.startswith("ExecStart=/usr/bin/env $ONCEGATE_CLOUD ")]
    words = " ".join(environment[word[1:]] if word.startswith("$") else word for word in start.split()[2:]).split()
    assert parse(words).command.name == ("job" if command == "cloud" else command)
