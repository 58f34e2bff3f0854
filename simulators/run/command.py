"""`oncegate-sim run`: play a scenario, show the verdict, write the report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from simulators.evidence.postgres import PostgresError
from simulators.evidence.topic import TopicError
from simulators.fleet import FleetError
from simulators.ledger import LedgerError
from simulators.oracle.verdict import DECLARED, Verdict, sentence
from simulators.parts.error import PartError
from simulators.report.command import REPORT_FILE
from simulators.run.display import Display
from simulators.run.error import RunError
from simulators.run.options import Options, parse
from simulators.run.play import Stop
from simulators.run.run import run

FINE, FAILED, INTERRUPTED = 0, 1, 130

KNOWN_ERRORS = (RunError, PartError, LedgerError, PostgresError, TopicError, FleetError, FileExistsError)


def main(arguments: Sequence[str], program: str) -> int:
    """Run a scenario and return the exit status: 0 only where a whole run was judged and nothing was broken."""
    options = parse(arguments, program)
    console = Console()
    console.print(f"seed {options.seed}; the truth goes to {options.ledger_file}", soft_wrap=True)
    try:
        verdict = asyncio.run(_run(options, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(
            f"interrupted: nothing is judged; nothing is left running, the ledger is {options.ledger_file}",
            soft_wrap=True,
        )
        return INTERRUPTED
    except KNOWN_ERRORS as error:
        return _fail([error], console)
    except ExceptionGroup as group:
        known, others = group.split(KNOWN_ERRORS)
        if known is None or others is not None:
            raise
        return _fail(list(flat(known)), console)
    show(verdict, options.scenario.name, console)
    console.print(f"report: {options.folder / REPORT_FILE}", soft_wrap=True)
    if not verdict.kept:
        return FAILED
    return FINE if verdict.complete else INTERRUPTED


def show(verdict: Verdict, name: str, console: Console) -> None:
    """Lay the verdict out for a terminal: figures, violations with their histories, and the sentence."""
    table = Table(title=name, title_justify="left")
    table.add_column("")
    table.add_column("count", justify="right")
    for label, count in _figures(verdict):
        table.add_row(label, "not looked at" if count is None else f"{count:,}")
    console.print(table)
    for violation in verdict.violations:
        console.print(str(violation), style="red", highlight=False, markup=False, soft_wrap=True)
    for limit, count in verdict.declared.items():
        if count:
            console.print(f"declared: {limit} ({count:,}): {DECLARED[limit]}", soft_wrap=True)
    colour = "bold green" if verdict.kept else "bold red"
    console.print(sentence(verdict), style=colour, soft_wrap=True)


async def _run(options: Options, console: Console) -> Verdict:
    """Run; the first Ctrl-C asks for the report so far, the second ends at once."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    with Display(console) as display:

        def interrupted() -> None:
            if stop.asked.is_set():
                task.cancel()
            else:
                display.fact("interrupted: what there is will be judged; once more to end at once")
                stop()

        loop.add_signal_handler(signal.SIGINT, interrupted)
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
        return await run(options, display, stop)


def _figures(verdict: Verdict) -> Iterator[tuple[str, int | None]]:
    yield "events that the sensors had to report", verdict.events
    yield "transmissions of events, resends included", verdict.transmissions
    yield "acked: the sensor knows that its event is safe", verdict.acked
    yield "refused, or given up by the sensor", verdict.refused + verdict.given_up
    yield "records in Kafka", verdict.records
    yield "rows in the table", verdict.rows
    for name, count in verdict.faults.items():
        yield f"[bold red]{name}[/]", count


def _fail(errors: Sequence[BaseException], console: Console) -> int:
    for error in errors:
        console.print(f"run failed: {error}", highlight=False, markup=False, soft_wrap=True)
    return FAILED


def flat(error: BaseException) -> Iterator[BaseException]:
    """Give the errors of a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from flat(inner)
    else:
        yield error
