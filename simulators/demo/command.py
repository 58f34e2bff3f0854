"""`oncegate-sim demo`: run the demo, show the verdict, write summary and report."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from rich.console import Console

from simulators.demo import report, summary
from simulators.demo.options import DemoOptions, parse
from simulators.demo.run import DemoResult, run
from simulators.display import Display
from simulators.oracle.verdict import sentence
from simulators.terminal import FAILED, FINE, guarded, open_console


def main(arguments: Sequence[str], program: str) -> int:
    """Run the demo and return the exit status: 0 only where the oracle found no fault."""
    options = parse(arguments, program)
    console = open_console()
    console.print(f"seed {options.seed}; all files are in {options.folder}")
    logs = f"no process is left, the logs are in {options.folder}/logs"

    def work() -> int:
        return _conclude(asyncio.run(_run(options, console)), options, console)

    interrupted = f"interrupted: no verdict; {logs}"
    return guarded(work, "demo", console, interrupted=interrupted, failed=f"seed {options.seed}; {logs}")


async def _run(options: DemoOptions, console: Console) -> DemoResult:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with Display(console) as display:
        return await run(options, display)


def _conclude(evidence: DemoResult, options: DemoOptions, console: Console) -> int:
    figures = evidence.summary
    figures.write(options.folder / "summary.json")
    report.write(evidence, options.folder / "report.html")
    console.print()
    console.print(summary.table(figures))
    console.print(summary.kill_table(figures))
    for violation in figures.verdict.violations:
        console.print(str(violation), style="red", highlight=False)
    console.print(f"figures: {options.folder}/summary.json   report: {options.folder}/report.html", soft_wrap=True)
    verdict = figures.verdict
    console.print(sentence(verdict), style="bold green" if verdict.kept else "bold red", soft_wrap=True)
    if verdict.kept:
        return FINE
    console.print(f"the logs are in {options.folder}/logs", soft_wrap=True)
    return FAILED
