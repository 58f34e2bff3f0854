"""`oncegate rejected` beside a running agent."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

from tests.agent.cli.running import RunningAgent

INVALID = b'{"device":"urn:rejected:1","id":1,"data":{"x":"\xe9"},"colour":1}'.replace(b"\xe9", "é".encode())
DENIED = b'{"device":"urn:denied:2","id":1}'


@pytest.fixture(scope="module")
def numbers(running_agent: RunningAgent) -> list[int]:
    """Have two events rejected; return their numbers."""
    api = running_agent.api
    body = b'[{"device":"urn:valid","id":1},' + INVALID + b"," + DENIED + b"]"
    assert api.post("/api/v1/events", body, "application/json").document["rejected"] == 2
    listed = api.get("/api/v1/rejected?limit=2").document
    return [one["number"] for one in reversed(listed)]


def test_they_are_listed_in_order_with_reason_and_bytes(running_agent: RunningAgent, numbers: list[int]) -> None:
    done = running_agent.oncegate("rejected", "--limit", "2")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["number"], one["via"], bytes.fromhex(one["raw"])) for one in found] == [
        (numbers[0], "http", INVALID),
        (numbers[1], "http", b""),
    ]
    assert found[0]["reason"] == "unknown field 'colour'"
    table = running_agent.oncegate("rejected", "--limit", "2", "--table").stdout.splitlines()
    assert table[0].split() == ["number", "received", "via", "device", "reason", "and", "beginning"]
    assert """unknown field 'colour': {"device":"urn:rejected: …""" in table[1]
    assert "is not allowed ([devices] allow, deny)" in table[2]


@pytest.mark.parametrize(
    ("words", "places"),
    [
        (("--reason", "COLOUR"), [0]),
        (("--device", "urn:denied:*"), [1]),
        (("--via", "http"), [0, 1]),
        (("--via", "mqtt"), []),
    ],
)
def test_they_are_selected(
    words: tuple[str, ...], places: list[int], running_agent: RunningAgent, numbers: list[int]
) -> None:
    lines = running_agent.oncegate("rejected", *words).stdout.splitlines()
    found = [json.loads(line)["number"] for line in lines]  # other tests have had events rejected, too
    assert [number for number in found if number in numbers] == [numbers[place] for place in places]


def test_the_bytes_of_one_are_written_as_they_arrived(running_agent: RunningAgent, numbers: list[int]) -> None:
    command = running_agent.command("rejected", "--raw", "--number", str(numbers[0]))
    assert subprocess.run(command, capture_output=True, check=True).stdout == INVALID
    assert running_agent.oncegate("rejected", "--raw").returncode == 2
    shown = running_agent.on_terminal("rejected", "--raw", "--number", str(numbers[0]))
    assert "these bytes could control this terminal" in shown
    assert "colour" not in shown
    assert running_agent.oncegate("rejected", "--raw", "--number", "999999").returncode == 1
    missing = running_agent.oncegate("rejected", "--number", "999999")
    assert (missing.returncode, "no such rejected event" in missing.stderr) == (1, True)


def test_a_download_is_a_new_file_for_its_owner(
    running_agent: RunningAgent, numbers: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "rejected.jsonl"
    done = running_agent.oncegate("rejected", "--download", str(file))
    assert (done.returncode, done.stdout, stat.S_IMODE(file.stat().st_mode)) == (0, "", 0o600)
    assert [json.loads(line)["number"] for line in file.read_text().splitlines()][-2:] == numbers
    again = running_agent.oncegate("rejected", "--download", str(file))
    assert (again.returncode, "File exists" in again.stderr) == (1, True)
