"""`oncegate-sim report`: rebuild the report of an earlier run."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simulators.arguments import USAGE, add_ledger, ledger_of, make_parser
from simulators.ledger import LedgerError
from simulators.oracle.verdict import Verdict, from_document
from simulators.report import page
from simulators.report.page import Arrivals

FAILURE = 1
VERDICT_FILE, ARRIVALS_FILE, REPORT_FILE = "verdict.json", "arrivals.json", "report.html"

_EXAMPLES = """examples:
  %(prog)s build/field/lossy-radio
  %(prog)s out.jsonl --output out.html
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Write the report and return the exit status: 0 written, 1 the ledger is unreadable, 2 wrong usage."""
    parser = make_parser(program, "Rebuild the report of a run from its folder, or from a ledger alone.", _EXAMPLES)
    add_ledger(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: report.html beside it")
    given = parser.parse_args(arguments)
    folder = given.source if given.source.is_dir() else given.source.parent
    output = given.output or folder / REPORT_FILE
    if (ledger_file := ledger_of(given, program)) is None:
        return USAGE
    try:
        build(ledger_file, folder if given.source.is_dir() else None, output)
    except LedgerError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return FAILURE
    print(output)
    return 0


def build(ledger_file: Path, folder: Path | None, output: Path) -> None:
    """Build the report; the verdict is that of the folder, or else that of the ledger alone."""
    verdict, arrivals = None, Arrivals()
    if folder is not None and (folder / VERDICT_FILE).exists():
        verdict = from_document(json.loads((folder / VERDICT_FILE).read_text()))
    if folder is not None and (folder / ARRIVALS_FILE).exists():
        arrivals = Arrivals(**json.loads((folder / ARRIVALS_FILE).read_text()))
    page.write(ledger_file, verdict or _verdict_of(ledger_file), arrivals, output)


def _verdict_of(ledger_file: Path) -> Verdict:
    from simulators import ledger
    from simulators.oracle.evidence_database import EvidenceDatabase
    from simulators.oracle.judge import judge
    from simulators.oracle.verdict import Scope

    with EvidenceDatabase() as evidence:
        evidence.add_ledger(ledger.read(ledger_file))
        return judge(evidence, Scope(has_table=False, complete=evidence.ended))
