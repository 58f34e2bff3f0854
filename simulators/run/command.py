"""`oncegate-sim run`: run a scenario, show the verdict, write the report."""

import asyncio
from collections.abc import Sequence

from rich.console import Console

from simulators.display import Display
from simulators.oracle.verdict import Verdict
from simulators.report.command import REPORT_FILE
from simulators.run.options import RunOptions, parse
from simulators.run.play import stop_on_signals
from simulators.run.run import run
from simulators.terminal import exit_status, guarded, open_console, show


def main(arguments: Sequence[str], program: str) -> int:
    """Run a scenario and return the exit status: 0 only where the whole run was judged and no fault was found."""
    return conduct(parse(arguments, program), "run")


def conduct(options: RunOptions, name: str) -> int:
    """Run as the options say, show the verdict, and return the exit status."""
    console = open_console()
    console.print(f"seed {options.seed}; ledger: {options.ledger_file}", soft_wrap=True)

    def work() -> int:
        verdict = asyncio.run(_run(options, console))
        show(verdict, options.scenario.name, console)
        console.print(f"report: {options.folder / REPORT_FILE}", soft_wrap=True)
        return exit_status(verdict)

    interrupted = f"interrupted: no verdict; no process is left, the ledger is {options.ledger_file}"
    return guarded(work, name, console, interrupted=interrupted)


async def _run(options: RunOptions, console: Console) -> Verdict:
    with Display(console) as display:
        return await run(options, display, stop_on_signals(display))
