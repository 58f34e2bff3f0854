"""The progress display: each text is printed unchanged, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.oracle.verdict import Verdict, Violation
from simulators.run.options import parse
from simulators.run.run import target_urls
from simulators.terminal import show

NAMES = ("coap://[fd00::1]:5683", "urn:dev:[/bold]:7", "[red]")


def _console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, no_color=True, width=200, markup=False)


def _shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_brackets_in_a_name_are_shown_and_no_markup(name: str, terminal: bool) -> None:
    console = _console(terminal=terminal)
    with Display(console) as display:
        display.phase(f"sensors report to {name}")
        display.count(1, 2, f"first of {name}")
        display.fact(f"{name} was killed")
    violation = Violation("lost", name, 1, 1, 0)
    verdict = Verdict(1, 1, 0, 0, 1, rows=0, lost=1, violations=(violation,))
    show(verdict, name, console)
    shown = _shown(console)
    for said in (f"sensors report to {name}", f"{name} was killed", f"lost: {name}"):
        assert said in shown
    assert shown.count(name) >= 4


def test_an_address_of_ipv6_is_shown_in_its_brackets() -> None:
    options = parse(["lost-acks", "--target", "coap://[fd00::1]"], "oncegate-sim run")
    assert target_urls(options) == "coap://[fd00::1]:5683"
