import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from agent.cli.store import trace
from agent.decode.delivery_body import decode
from agent.delivery import Delivery, Media
from contract.fingerprint import fingerprint
from simulators.services.install import programs
from simulators.services.process import Command, Process
from tests.agent.cli.running import here
from tests.docs.pages import ROOT, blocks
from tests.support.commands import output_of, run

README = ROOT / "README.md"
FINGERPRINT = "1876d2e5f34f91105e52555b000b5edc"
NAMESPACE = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
DISABLE = "ip link set lo up && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
"""Gives a new network namespace an IPv4 loopback, without the address ::1."""


def test_the_readme_lists_every_guarantee() -> None:
    headings = re.findall(r"^## (\d+)\.", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)
    assert re.findall(r"^(\d+)\. \[.*docs/guarantees\.md#\1-", README.read_text(), re.MULTILINE) == headings


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Process]:
    """Run the agent as the README says, in a network without IPv6."""
    done = run(*NAMESPACE, "sh", "-c", DISABLE)
    if done.returncode != 0:
        pytest.skip(f"no network namespace without IPv6 is permitted here: {done.stderr.strip()}")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "oncegate.toml").write_text(blocks(README, "toml")[0])
    command = next(line for line in lines() if "oncegate run" in line)
    process = Process(
        Command("agent", (*NAMESPACE, "sh", "-c", f"{DISABLE} && exec {command}"), tmp_path / "log", tmp_path)
    )
    process.start()
    process.wait_for_log("agent=ready")
    yield process
    process.kill()


def lines() -> list[str]:
    """Return the lines of the README's shell commands from the quick start on."""
    return [line for block in blocks(README, "sh") for line in block.splitlines()]


def test_the_quick_start_needs_no_ipv6(machine: Process, tmp_path: Path) -> None:
    def here(*command: str, text: str = "") -> str:
        """Run a command on the machine, and return its output."""
        enter = ["nsenter", f"--target={machine.pid}", "--net", *([] if os.geteuid() == 0 else ["--user"])]
        return output_of(*enter, *command, text=text, cwd=tmp_path)

    def shell(word: str) -> str:
        return here("sh", "-c", next(line for line in lines() if word in line))

    assert here("cat", "/proc/net/if_inet6") == ""
    assert here(sys.executable, "-", text=blocks(README, "python")[0]) == "2.04\n"
    assert [shell("oncegate send").split()[0] for _ in range(2)] == ["duplicate", "duplicate"]
    if programs.find("coap-client-notls"):
        assert shell("coap-client-notls") == ""
    assert shell("oncegate fingerprint").strip() == FINGERPRINT
    events = here(*shlex.split(".venv/bin/oncegate events --config oncegate.toml"))
    assert events.count(FINGERPRINT) == 1
    page = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8580/{}').read().decode())"
    assert "<title>" in here(sys.executable, "-c", page.format(""))
    assert FINGERPRINT in here(sys.executable, "-c", page.format("api/v1/live?after=0"))


def test_the_event_in_the_help_of_trace_has_the_fingerprint_that_stands_above_it() -> None:
    (event,) = re.findall("echo '(.*)' \\| oncegate fingerprint", trace.EXAMPLES)
    assert here("fingerprint", text=event).stdout == FINGERPRINT + "\n"
    assert f"oncegate trace {FINGERPRINT}\n" in trace.EXAMPLES


PAGE = (ROOT / "docs" / "sensors.md").read_text()
EXAMPLE = re.compile(r"^```(json|cbor|senml|query)\n(.*?)^```\n\nFingerprints?: ([^\n]+)$", re.DOTALL | re.MULTILINE)
EXAMPLES = [(kind, text, re.findall(r"`(.+?)`", prints)) for kind, text, prints in EXAMPLE.findall(PAGE)]


def by_command(body: bytes, file: Path) -> list[str]:
    file.write_bytes(body)
    return here("fingerprint", str(file)).stdout.split()


def by_delivery(body: str, media: Media, query: str = "") -> list[str]:
    words = dict(parse_qsl(urlsplit(query).query))
    decoded = decode(Delivery(body.encode(), media, "coap", "coap://[::1]", query=words))
    assert not decoded.rejected
    return [fingerprint(event).hex() for event in decoded.events]


@pytest.mark.parametrize(("kind", "text", "prints"), EXAMPLES)
def test_an_example_has_the_fingerprint_that_stands_below_it(
    kind: str, text: str, prints: list[str], tmp_path: Path
) -> None:
    match kind:
        case "json":
            found = by_command(text.encode(), tmp_path / "event")
        case "cbor":
            found = by_command(bytes.fromhex(text), tmp_path / "event")
        case "senml":
            found = by_delivery(text, Media.SENML_JSON)
        case _:
            query, _, body = text.partition("\n")
            found = by_delivery(body, Media.JSON, query)
    assert found == prints


def test_every_example_is_tried_and_is_taken_as_it_stands() -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```\w", PAGE, re.MULTILINE))
    for kind, text, _ in EXAMPLES:
        if kind == "json":
            decoded = decode(Delivery(json.dumps(json.loads(text)).encode(), Media.JSON, "coap", "coap://[::1]"))
            assert decoded.events
            assert not decoded.rejected
