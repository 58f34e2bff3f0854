"""Sensor data cannot control a terminal: control characters, bidi overrides and invisible characters are escaped."""

import io
import json
import logging
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.systemd.journal import SafeFormatter
from agent.terminal import Colour, json_line, paint, printable
from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.cli.running import here
from tests.agent.store.stores import accept, change, make_store
from tests.support.agent_process import configured

SIGNS = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) + (
    "\u00ad\u061c\u200b\u200d\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\ufff9\U000e0041"
)
READABLE = "Gr\u00f6\u00dfe \u6e29\u5ea6 \u0915\u094d\u0937 \u00a0\U0001f321"
EVIL = Event("d\u202e\u2066", id="i\u200d\u2028", data={f"k{SIGNS}": f"v{SIGNS}", "s": READABLE}, units={"s": "\x9b2J"})

Run = Callable[..., str]


@pytest.fixture
async def run(tmp_path: Path) -> Run:
    async with make_store(tmp_path / "state") as store:
        for _ in range(2):
            await accept(store, EVIL)
        await accept(store, Event("d", id=1))
    configuration = configured(tmp_path)

    def command(*arguments: str) -> str:
        done = here(*arguments, "--config", str(configuration))
        return done.stdout + done.stderr

    return command


def is_harmless(text: str) -> bool:
    return all(sign == "\n" or sign.isprintable() or unicodedata.category(sign) == "Zs" for sign in text)


NAME = fingerprint(EVIL).hex()


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    "arguments",
    [
        ("events",),
        ("events", "--json"),
        ("events", "--duplicates"),
        ("trace", NAME),
        ("trace", NAME, "--json"),
        ("status",),
        ("status", "--json"),
        ("verify",),
        ("verify", "--json"),
        ("replay", "--epoch", f"e{SIGNS}".replace("\0", "")),
    ],
)
def test_no_command_writes_what_a_terminal_would_obey(run: Run, arguments: tuple[str, ...]) -> None:
    output = run(*arguments)
    assert output
    assert is_harmless(output)


def test_no_finding_of_a_damaged_store_writes_what_a_terminal_would_obey(run: Run, tmp_path: Path) -> None:
    renamed = "UPDATE facts SET name = ? WHERE name = (SELECT min(name) FROM facts)"
    change(tmp_path / "state", renamed, values=(f"x{SIGNS}",))
    for arguments in (("verify",), ("verify", "--json"), ("status",)):
        assert is_harmless(run(*arguments))


def test_the_objects_that_are_written_say_what_the_sensor_said(run: Run) -> None:
    event = next(event for event in map(json.loads, run("events").splitlines()) if event["type"] == "reading")
    assert event["data"] == EVIL.data
    assert (event["device"], event["id"], event["units"]) == (EVIL.device, EVIL.id, EVIL.units)
    assert READABLE in run("events")
    assert json.loads(run("trace", NAME, "--json"))["event"]["data"] == EVIL.data


@given(st.text())
def test_any_text_becomes_printable_and_any_object_stays_what_it_is(text: str) -> None:
    assert is_harmless(printable(text))
    assert "\n" not in printable(text)
    line = json_line({text: [text]})
    assert is_harmless(line)
    assert "\n" not in line
    assert json.loads(line) == {text: [text]}


@pytest.mark.guarantee(6)
def test_a_line_of_the_log_obeys_nobody_and_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError(f"said {SIGNS}\n2026-11-29 12:00:00 INFO agent=ready")
    except ValueError:
        record = logging.LogRecord("agent.x", logging.ERROR, "x.py", 7, "said=%s", (f"x{SIGNS}",), sys.exc_info())
    text = SafeFormatter("%(message)s").format(record)
    assert is_harmless(text)
    first, *others = text.splitlines()
    assert first.startswith("said=x")
    assert "\\x1b" in first
    assert "  Traceback (most recent call last):" in others
    assert [line for line in others if not line.startswith("  ")] == [], "a text begins no line of the log"


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", Colour.BAD, Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", Colour.BAD, io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("x", Colour.BAD, Terminal()) == "x"
