"""The demo's command: run it, show the verdict, write summary and report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from rich.console import Console

from simulators.demo import report, summary
from simulators.demo.options import Options, parse
from simulators.demo.run import Evidence, run
from simulators.oracle.verdict import sentence
from simulators.run.command import KNOWN_ERRORS, flat
from simulators.run.display import Display

FINE, FAILED, INTERRUPTED = 0, 1, 130


def main(arguments: Sequence[str], program: str) -> int:
    """Run the demo and return the exit status: 0 only where the oracle found no fault."""
    options = parse(arguments, program)
    console = Console()
    console.print(f"seed {options.seed}; everything is kept in {options.folder}")
    try:
        evidence = asyncio.run(_run(options, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(f"interrupted: nothing is judged; nothing is left running, the logs are in {options.folder}/logs")
        return INTERRUPTED
    except KNOWN_ERRORS as error:
        return _fail([error], options, console)
    except ExceptionGroup as group:
        known, others = group.split(KNOWN_ERRORS)
        if known is None or others is not None:
            raise
        return _fail(list(flat(known)), options, console)
    return _conclude(evidence, options, console)


async def _run(options: Options, console: Console) -> Evidence:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with Display(console) as display:
        return await run(options, display)


def _conclude(evidence: Evidence, options: Options, console: Console) -> int:
    figures = evidence.summary
    figures.write(options.folder / "summary.json")
    report.write(evidence, options.folder / "report.html")
    console.print()
    console.print(summary.table(figures))
    console.print(summary.kill_table(figures))
    for violation in figures.verdict.violations:
        console.print(str(violation), style="red", highlight=False, markup=False)
    console.print(f"figures: {options.folder}/summary.json   report: {options.folder}/report.html", soft_wrap=True)
    verdict = figures.verdict
    console.print(sentence(verdict), style="bold green" if verdict.kept else "bold red", soft_wrap=True)
    if verdict.kept:
        return FINE
    console.print(f"the logs are in {options.folder}/logs", soft_wrap=True)
    return FAILED


def _fail(errors: Sequence[BaseException], options: Options, console: Console) -> int:
    for error in errors:
        console.print(f"demo failed: {error}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"seed {options.seed}; nothing is left running, the logs are in {options.folder}/logs")
    return FAILED
