"""`oncegate-sim judge`: judge an earlier run by its ledger and the current content of the sink."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from simulators.arguments import USAGE, add_ledger, ledger_of, make_parser
from simulators.display import Display
from simulators.judge.remote import judge_remote_run, wait_for_rows
from simulators.judge.sink import Sink, add_arguments, read_sink
from simulators.oracle.verdict import Verdict
from simulators.report.command import REPORT_FILE, VERDICT_FILE, build
from simulators.terminal import exit_status, guarded, open_console, show

_EXAMPLES = """examples:
  %(prog)s build/field/lossy-radio --table /data/events
  %(prog)s build/field/lossy-radio --table /data/events --final
  %(prog)s out.jsonl --kafka kafka.lan:9092 --kafka-properties kafka.properties
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Judge a run, write verdict and report beside the ledger, and return the same exit status as `run`."""
    parser = make_parser(
        program,
        (
            "Judge a run again by its ledger: later, or by another sink. Exit status 0: the guarantees held; 1: "
            "one was violated, or the evidence was missing or incomplete; 2: wrong usage; 130: the run was interrupted."
        ),
        _EXAMPLES,
    )
    add_ledger(parser)
    add_arguments(parser)
    parser.add_argument(
        "--final",
        action="store_true",
        help="count each acked event that is missing as lost: use it once the gateway's status shows 0 new events and "
        "the job has written all records",
    )
    given = parser.parse_args(arguments)
    sink = read_sink(parser, given)
    if (ledger_file := ledger_of(given, program)) is None:
        return USAGE
    console = open_console()

    def work() -> int:
        verdict = asyncio.run(_judge(ledger_file, sink, console, final=given.final))
        (ledger_file.parent / VERDICT_FILE).write_text(json.dumps(verdict.document(), indent=2) + "\n")
        build(ledger_file, ledger_file.parent, ledger_file.parent / REPORT_FILE)
        show(verdict, str(ledger_file), console)
        console.print(f"report: {ledger_file.parent / REPORT_FILE}", soft_wrap=True)
        return exit_status(verdict)

    return guarded(work, "judge", console, interrupted="interrupted: no verdict")


async def _judge(ledger_file: Path, sink: Sink, console: Console, *, final: bool) -> Verdict:
    sink.require()  # the run is over: a table that does not exist is not waited for
    with Display(console) as display:
        stands = await wait_for_rows(ledger_file, sink, display)
        display.phase("comparing the evidence with the ledger")
        return await asyncio.to_thread(judge_remote_run, ledger_file, sink, arriving=not stands, final=final)
