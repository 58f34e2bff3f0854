"""Compare the commands of the cloud's units, as the template of their environment completes them, with the parsers."""

from pathlib import Path

import pytest

from cloud.cli.commands import parse

UNITS = Path(__file__).resolve().parents[3] / "systemd"


def words_of(command: str) -> list[str]:
    """Expand the variables as systemd does: each is split at spaces, and an empty one is no argument."""
    lines = (UNITS / "cloud.env.example").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    unit = (UNITS / f"oncegate-{command}.service").read_text()
    [start] = [line for line in unit.splitlines() if line.startswith("ExecStart=/usr/bin/env $ONCEGATE_CLOUD ")]
    return " ".join(environment[word[1:]] if word.startswith("$") else word for word in start.split()[2:]).split()


@pytest.mark.parametrize("command", ["cloud", "audit", "maintenance"])
def test_a_unit_starts_a_command_that_is_accepted(command: str) -> None:
    assert parse(words_of(command)).command.name == ("job" if command == "cloud" else command)


def test_the_audit_may_write_to_the_places_of_the_template() -> None:
    lines = (UNITS / "oncegate-audit.service").read_text().splitlines()
    assert "ProtectSystem=strict" in lines
    [names] = [line.removeprefix("StateDirectory=").split() for line in lines if line.startswith("StateDirectory=")]
    folders = [Path("/var/lib", name) for name in names]
    words = words_of("audit")
    places = {option: Path(words[words.index(option) + 1]) for option in ("--output", "--report", "--metrics-file")}
    assert all(any(place.is_relative_to(folder) for folder in folders) for place in places.values())
    assert places["--metrics-file"].parent in folders  # systemd creates it, for all to read
