"""Has TLC look for a behaviour of the model of the path that fits a trace (models/traced_field.tla)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from simulators.errors import SimulatorError
from simulators.services import tlc
from simulators.validate.traces import Step, Trace, positions, repeats

SECONDS_MAX = 1_200.0
_MODELS = Path(__file__).resolve().parents[2] / "models"
_SPECIFICATIONS = (_MODELS / "path" / "path.tla", _MODELS / "traced_field.tla")
_FITS = re.compile(r"^<<\"fits\", (\d+)>>$", re.MULTILINE)
_CONSTANTS = ("KillsMax = 0", "LossesMax = 0", "Losses = {}", "ElectionsMax = 0", "Tables = 1", "Repeats = FALSE")


class ModelError(SimulatorError):
    """The model cannot be checked."""


def fitting(traces: Sequence[Trace]) -> list[bool]:
    """Return which of the traces fit; raise ModelError where TLC finds no answer or is not there."""
    if not traces:
        return []
    if not all(source.exists() for source in _SPECIFICATIONS):
        raise ModelError(f"{_MODELS} has no models: run it in a checkout, after make setup")
    run = tlc.run_traced(_SPECIFICATIONS, _module(traces), _configuration(traces), SECONDS_MAX)
    if run.outcome is not tlc.CheckOutcome.HOLDS:
        raise ModelError(f"TLC failed: {run.output}")
    fits = {int(number) for number in _FITS.findall(run.output)}
    return [number in fits for number in range(1, len(traces) + 1)]


def fitting_steps(trace: Trace) -> int:
    """Return how many steps of a trace that does not fit do, from the first one on."""
    beginnings = [trace[:end] for end in range(len(trace) + 1)]
    return max((end for end, fits in enumerate(_reachable(beginnings)) if fits), default=0)


def _reachable(traces: Sequence[Trace]) -> list[bool]:
    return fitting([(*trace, Step("stop", 0)) for trace in traces])


def _module(traces: Sequence[Trace]) -> str:
    written = ",\n".join(f"  <<{', '.join(map(_record, _ended(trace)))}>>" for trace in traces)
    return f"---- MODULE lines ----\nTraces == <<\n{written}\n>>\n====\n"


def _ended(trace: Trace) -> Trace:
    return trace if trace and trace[-1].event == "stop" else (*trace, Step("end", 0))


def _record(step: Step) -> str:
    return f'[event |-> "{step.event}", p |-> {step.position}, o |-> {step.offset}]'


def _configuration(traces: Sequence[Trace]) -> str:
    largest = (
        f"Events = {max(1, *map(positions, traces))}",
        f"LogMax = {max(sum(step.event == 'record' for step in trace) for trace in traces)}",
        f"OrdersMax = {max(map(repeats, traces))}",
    )
    values = "".join(f" {constant}\n" for constant in (*largest, *_CONSTANTS))
    return f"SPECIFICATION TraceSpec\nCONSTANTS\n{values}"
