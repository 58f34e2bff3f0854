"""`oncegate-sim validate`: compare what a run has seen of each device with the model of the path."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from simulators import ledger as ledgers
from simulators.arguments import USAGE, add_ledger, ledger_of, make_parser
from simulators.errors import SimulatorError
from simulators.evidence import topic
from simulators.evidence.row import Row
from simulators.evidence.topic import RECORDS_FILE
from simulators.judge.sink import Sink, add_arguments, read_sink
from simulators.services import tlc
from simulators.terminal import FAILED, FINE, guarded, open_console
from simulators.validate.traces import STRANGE, Step, Trace, Traces, collect, positions, repeats

SHOWN_MAX = 5
"""Of how many devices that do not fit the first step that does not is looked for."""
_TABLE = Path("cloud") / "table"
"""Where a run with --local has its table."""
_EXAMPLES = """examples:
  %(prog)s build/field/lossy-radio
  %(prog)s build/field/lossy-radio --table /data/events
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Validate a run, print the result, and return the exit status."""
    parser = make_parser(
        program,
        (
            "Look for a behaviour of the model of the path (docs/verification.md) that fits what a run has seen of "
            "each device: requests, ACKs, records, rows. A run with --local needs no further option. Exit status 0: "
            "each fits; 1: one does not, none could be compared, or none was acked; 2: wrong usage."
        ),
        _EXAMPLES,
    )
    add_ledger(parser)
    add_arguments(parser)
    given = parser.parse_args(arguments)
    sink = read_sink(parser, given)
    if (ledger_file := ledger_of(given, program)) is None:
        return USAGE
    console = open_console()
    return guarded(
        lambda: _show(_traces(ledger_file, sink, console), console),
        "validate",
        console,
        interrupted="interrupted: no result",
    )


def _traces(ledger_file: Path, sink: Sink, console: Console) -> Traces:
    folder = ledger_file.parent
    records: Iterable[Row] | None = None
    if not sink.named:
        sink = Sink(table=folder / _TABLE)
        if (folder / RECORDS_FILE).exists():
            records = topic.read_saved(folder / RECORDS_FILE)
    sink.require()
    if sink.topic is None and records is None:
        console.print("not compared: the records of the topic; each row counts as the one of its event", soft_wrap=True)
    with sink.reading("", {}) as opened:
        if sink.topic is None:
            return collect(ledgers.read(ledger_file), records, opened.records)
        # The brokers' clock may differ from that of the sensors.
        untimed = (row._replace(at=None) for row in opened.records)
        return collect(ledgers.read(ledger_file), untimed, None)


def _show(traces: Traces, console: Console) -> int:
    fits = fitting([*traces.by_device.values()])
    wrong = [name for name, one in zip(traces.by_device, fits, strict=True) if not one]
    for name in wrong[:SHOWN_MAX]:
        console.print(f"{name}: does not fit: {_described(traces.by_device[name])}", soft_wrap=True, highlight=False)
    for reason, count in sorted(traces.left_out.items()):
        console.print(f"left out: {count} devices: {reason}", soft_wrap=True, highlight=False)
    events = sum(map(positions, traces.by_device.values()))
    steps = sum(map(len, traces.by_device.values()))
    console.print(
        f"{len(fits)} devices compared, with {events:,} events in {steps:,} steps: {len(wrong)} do not fit the model",
        soft_wrap=True,
        highlight=False,
    )
    if not any(step.event == "acked" for trace in traces.by_device.values() for step in trace):
        console.print("no result: no event of these devices was acked", soft_wrap=True)
        return FAILED
    return FAILED if wrong else FINE


def _described(trace: Trace) -> str:
    fitting = fitting_steps(trace)
    if fitting == len(trace):
        return "an event that was acked is missing in the end"
    step = trace[fitting]
    event = "an event that the ledger does not have" if step.position == STRANGE else f"its event {step.position}"
    return f"step {fitting + 1} of {len(trace)}, {step.event} of {event}"


SECONDS_MAX = 1_200.0
_MODELS = Path(__file__).resolve().parents[2] / "models"
_SPECIFICATIONS = (_MODELS / "path" / "path.tla", _MODELS / "traced_field.tla")
_FITS = re.compile(r"^<<\"fits\", (\d+)>>$", re.MULTILINE)
_FAULTS = ("KillsMax = 0", "LossesMax = 0", "Losses = {}", "ElectionsMax = 0")
_CONSTANTS = (*_FAULTS, "Tables = 1", "Repeats = FALSE", "Rounds = TRUE")


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
    fits = fitting([(*beginning, Step("stop", 0)) for beginning in beginnings])
    return max((end for end, one in enumerate(fits) if one), default=0)


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
