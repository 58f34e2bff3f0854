"""Compares traces of the agent with the model of the path: TLC looks for a behaviour that fits (traced_path.tla)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models import suite
from simulators.services import tlc
from simulators.services.tlc import CheckOutcome
from tests.crashes.sensor import LOAD

_SPECIFICATIONS = (suite.FOLDER / "path" / "path.tla", Path(__file__).with_name("traced_path.tla"))
SECONDS_MAX = 600.0
FIRST_OF_REQUESTS = [1 + sum(count for count, _ in LOAD[:place]) for place in range(len(LOAD))]
"""The ids of the events that the model sees."""
_CONSTANTS = {
    "LogMax": "0",
    "LossesMax": "0",
    "Losses": "{}",
    "ElectionsMax": "0",
    "OrdersMax": "0",
    "Tables": "1",
    "Repeats": "FALSE",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a trace: what happened, to which event of the model; 0 where to none."""

    event: str
    position: int = 0


Trace = Sequence[Line]


def read(file: Path) -> list[Line]:
    """Return the lines about the first event of each request of the load, which stand for all of them."""
    positions = {number: place for place, number in enumerate(FIRST_OF_REQUESTS, 1)}
    lines = []
    for text in file.read_text().splitlines():
        noted = json.loads(text)
        chosen = [positions[number] for number in noted["ids"] if number in positions]
        if noted["event"] == "found":
            lines.append(Line("found", len(chosen) if chosen == list(range(1, len(chosen) + 1)) else 0))
        elif chosen or not noted["ids"]:
            lines += [Line(noted["event"], position) for position in chosen or [0]]
    return lines


def fits_any(traces: Sequence[Trace]) -> bool:
    """Whether any of the traces is a behaviour of the model; raise SuiteError where TLC finds no answer."""
    run = tlc.run_traced(_SPECIFICATIONS, _module(traces), _configuration(traces), SECONDS_MAX)
    if run.outcome is CheckOutcome.FAILED:
        raise suite.SuiteError(run.output)
    return run.outcome is CheckOutcome.VIOLATED


def without_resends(trace: Trace) -> list[Line]:
    """Return a trace with each line about an event once: where a resend is among the others is open."""
    return [line for at, line in enumerate(trace) if not line.position or line not in trace[:at]]


def changed(trace: Trace) -> Iterator[list[Line]]:
    """Yield the trace with each line left out, repeated, and exchanged with the next one."""
    for at, line in enumerate(trace):
        yield [*trace[:at], *trace[at + 1 :]]
        yield [*trace[:at], line, *trace[at:]]
        for following in trace[at + 1 : at + 2]:
            yield [*trace[:at], following, line, *trace[at + 2 :]]


def _module(traces: Sequence[Trace]) -> str:
    written = ",\n".join(
        "  <<" + ", ".join(f'[event |-> "{line.event}", p |-> {line.position}]' for line in trace) + ">>"
        for trace in traces
    )
    return f"---- MODULE lines ----\nTraces == {{\n{written}\n}}\n====\n"


def _configuration(traces: Sequence[Trace]) -> str:
    events = max(line.position for trace in traces for line in trace)
    kills = max(sum(line.event == "killed" for line in trace) for trace in traces)
    constants = {"Events": str(events), "KillsMax": str(kills), **_CONSTANTS}
    values = "".join(f" {name} = {value}\n" for name, value in constants.items())
    return f"SPECIFICATION TraceSpec\nINVARIANT NoneFits\nCONSTANTS\n{values}"
