"""Terminal output that the commands share: the console, the verdict, known errors, exit statuses."""

import asyncio
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.table import Table

from simulators.errors import SimulatorError
from simulators.oracle.verdict import DECLARED, Verdict, sentence

FINE, FAILED, INTERRUPTED = 0, 1, 130

KNOWN_ERRORS = (SimulatorError, FileExistsError)


def open_console() -> Console:
    """Return a console that prints brackets in addresses, paths and device names as they are."""
    return Console(markup=False)


def guarded(work: Callable[[], int], name: str, console: Console, *, interrupted: str, failed: str = "") -> int:
    """Run the work and return its exit status; a known error or an interrupt is printed in one line."""
    try:
        return work()
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(interrupted, soft_wrap=True)
        return INTERRUPTED
    except KNOWN_ERRORS as error:
        errors: list[BaseException] = [error]
    except ExceptionGroup as group:
        known, others = group.split(KNOWN_ERRORS)
        if known is None or others is not None:
            raise
        errors = list(flat(known))
    for one in errors:
        console.print(f"{name} failed: {one}", highlight=False, soft_wrap=True)
    if failed:
        console.print(failed, soft_wrap=True)
    return FAILED


def flat(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from flat(inner)
    else:
        yield error


def exit_status(verdict: Verdict) -> int:
    """Return the exit status of a judged run: 0 only where the whole run was judged and no fault was found."""
    if verdict.faults or verdict.vacuous:
        return FAILED
    if not verdict.complete:
        return INTERRUPTED
    return FINE if verdict.kept else FAILED


def show(verdict: Verdict, name: str, console: Console) -> None:
    """Print the verdict: figures, violations with their histories, and the summary sentence."""
    table = Table(title=name, title_justify="left")
    table.add_column("")
    table.add_column("count", justify="right")
    for label, count in _figures(verdict):
        table.add_row(label, "not read" if count is None else f"{count:,}")
    for label, count in verdict.faults.items():
        table.add_row(label, f"{count:,}", style="bold red")
    console.print(table)
    for violation in verdict.violations:
        console.print(str(violation), style="red", highlight=False, soft_wrap=True)
    for limit, count in verdict.declared.items():
        if count:
            console.print(f"declared: {limit} ({count:,}): {DECLARED[limit]}", soft_wrap=True)
    console.print(sentence(verdict), style=_colour(verdict), soft_wrap=True)


def _figures(verdict: Verdict) -> Iterator[tuple[str, int | None]]:
    yield "events that the sensors reported", verdict.events
    yield "transmissions of events, resends included", verdict.transmissions
    yield "acked: the sensor has received the ACK", verdict.acked
    yield "refused, or given up by the sensor", verdict.refused + verdict.given_up
    yield "records in Kafka", verdict.records
    if verdict.malformed:
        yield "malformed records in Kafka, skipped", verdict.malformed
    yield "events in Kafka" if verdict.of_topic else "rows in the table", verdict.rows


def _colour(verdict: Verdict) -> str:
    if verdict.faults or verdict.vacuous:
        return "bold red"
    return "bold green" if verdict.kept else "bold yellow"
