"""Compares traces of schedules with the model of the path: TLC looks for a behaviour that fits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from models import suite
from simulators.services import tlc
from simulators.services.tlc import CheckOutcome

_SPECIFICATIONS = (suite.FOLDER / "path" / "path.tla", Path(__file__).with_name("traced_schedule.tla"))
SECONDS_MAX = 600.0
INVARIANTS = suite.configuration("path/kills").invariants
_FITS = re.compile(r"^<<\"fits\", (\d+)>>$", re.MULTILINE)
_CONSTANTS = {
    "LossesMax": "0",
    "Losses": "{}",
    "ElectionsMax": "1000",
    "OrdersMax": "1000",
    "KillsMax": "1000",
    "Tables": "1",
    "Repeats": "FALSE",
}
Positions = frozenset[int]
NONE: Positions = frozenset()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a trace: what happened, and to which events of the model, by their positions."""

    event: str
    position: int = 0
    """Of the event; of a plan or a receipt its end, of a store its last position."""
    positions: Positions = NONE
    """The events of a batch; of a receipt those that no earlier one covers, of a store those that are processed."""
    kept: Positions = NONE
    """Of a store: the events that it has."""
    forwarded: Positions = NONE
    """Of a store: the events that are forwarded."""


Trace = Sequence[Line]
STOP = Line("stop")
"""Ends a trace anywhere."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed trace, and the one or two lines that were left out, repeated or exchanged, as they were."""

    kind: str
    at: int
    """The place of the first of these lines."""
    lines: Sequence[Line]
    trace: Trace


def fitting(traces: Sequence[Trace]) -> list[bool]:
    """Return which of the traces are behaviours of the model; raise SuiteError where TLC finds no answer.

    What the others share with the first trace, from the beginning on, is looked at once.
    """
    run = tlc.run_traced(_SPECIFICATIONS, _module(traces), _configuration(traces), SECONDS_MAX)
    if run.outcome is not CheckOutcome.HOLDS:
        raise suite.SuiteError(run.output)
    fits = {int(number) for number in _FITS.findall(run.output)}
    return [number in fits for number in range(1, len(traces) + 1)]


def fitting_lines(traces: Sequence[Trace]) -> list[int]:
    """Return how many lines of each trace fit, from the first one on."""
    ends = [(at, end) for at, trace in enumerate(traces) for end in range(len(trace) + 1)]
    fits = fitting([(*traces[at][:end], STOP) for at, end in ends])
    return [
        max(end for (of, end), fit in zip(ends, fits, strict=True) if fit and of == at) for at in range(len(traces))
    ]


def changes(trace: Trace) -> Iterator[Change]:
    """Yield the trace with each line left out, repeated, and exchanged with the next one that differs."""
    for at, line in enumerate(trace):
        yield Change("left out", at, (line,), (*trace[:at], *trace[at + 1 :]))
        yield Change("repeated", at, (line,), (*trace[:at], line, *trace[at:]))
        for following in trace[at + 1 : at + 2]:
            if following != line:
                yield Change("exchanged", at, (line, following), (*trace[:at], following, line, *trace[at + 2 :]))


def _module(traces: Sequence[Trace]) -> str:
    lines = {line: at for at, line in enumerate(dict.fromkeys(line for trace in traces for line in trace), 1)}
    records = ",\n".join(f"  {_record(line)}" for line in lines)
    numbered = [[lines[line] for line in trace] for trace in traces]
    shared = [0, *(_common(numbered[0], trace) for trace in numbered[1:])]
    numbers = ",\n".join(f"  <<{', '.join(map(str, trace))}>>" for trace in numbered)
    return (
        f"---- MODULE lines ----\nLines == <<\n{records}\n>>\nTraces == <<\n{numbers}\n>>\n"
        f"Shared == <<{', '.join(map(str, shared))}>>\n====\n"
    )


def _common(first: Sequence[int], trace: Sequence[int]) -> int:
    """Return how many lines a trace shares with the first one; the last line of both is its own."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(first[:-1], trace[:-1], strict=False))
    return sum(1 for _ in equal)


def _record(line: Line) -> str:
    return (
        f'[event |-> "{line.event}", p |-> {line.position}, ps |-> {_set(line.positions)}, '
        f"kept |-> {_set(line.kept)}, forwarded |-> {_set(line.forwarded)}]"
    )


def _set(positions: Positions) -> str:
    return f"{{{', '.join(map(str, sorted(positions)))}}}"


def _configuration(traces: Sequence[Trace]) -> str:
    constants = {
        "Events": str(max(line.position for trace in traces for line in trace)),
        "LogMax": str(max(sum(line.event == "appended" for line in trace) for trace in traces)),
        **_CONSTANTS,
    }
    values = "".join(f" {name} = {value}\n" for name, value in constants.items())
    return f"SPECIFICATION TraceSpec\nINVARIANTS {' '.join(INVARIANTS)}\nCONSTANTS\n{values}"
