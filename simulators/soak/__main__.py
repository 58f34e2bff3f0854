"""The command of a soak: run it, show the verdict, keep the result."""

import asyncio
import json
import sys
from collections.abc import Sequence

from rich.console import Console

from simulators.display import Display
from simulators.run.play import stop_on_signals
from simulators.soak import results
from simulators.soak.plan import SoakOptions, parse
from simulators.soak.run import SoakOutcome, soak
from simulators.terminal import exit_status, guarded, open_console, show


def main(arguments: Sequence[str], program: str) -> int:
    """Run a soak and return the exit status: 0 only where no fault was found."""
    options = parse(arguments, program)
    console = open_console()
    console.print(f"seed {options.seed}; all files are in {options.folder}", soft_wrap=True)
    logs = f"seed {options.seed}; no process is left, ledger and logs are in {options.folder}"

    def work() -> int:
        outcome = asyncio.run(_run(options, console))
        entry = results.entry_of(options, outcome)
        (options.folder / "result.json").write_text(json.dumps(entry, indent=1) + "\n")
        if options.keep is not None:
            results.keep(options.keep, entry)
        show(outcome.verdict, f"soak, {entry['hours']} hours, {sum(outcome.faults.values())} faults", console)
        console.print(f"result: {options.folder / 'result.json'}", soft_wrap=True)
        return exit_status(outcome.verdict)

    return guarded(work, "soak", console, interrupted=f"interrupted: no verdict; {logs}", failed=logs)


async def _run(options: SoakOptions, console: Console) -> SoakOutcome:
    with Display(console) as display:
        return await soak(options, display, stop_on_signals(display))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m simulators.soak"))
