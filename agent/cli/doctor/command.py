"""`oncegate doctor`: check the gateway's environment; exit 1 where anything is wrong."""

import argparse
import sys
from dataclasses import asdict

from agent import terminal
from agent.cli.doctor.examination import examine
from agent.cli.doctor.finding import Condition, Finding
from agent.cli.doctor.measure import PACK, measure
from agent.cli.failures import FAILURE
from agent.config import load
from agent.config.settings import Settings
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from agent.terminal import Colour, count, json_line, paint, printable

JSON = "one JSON object a line"
EXAMPLES = """examples:
  oncegate doctor
  oncegate doctor --json | jq 'select(.condition != "fine")'
  sudo oncegate doctor --measure
  sudo systemctl stop oncegate && sudo oncegate doctor --repin && sudo systemctl start oncegate
"""
_COLOURS = {Condition.FINE: Colour.GOOD, Condition.WARNING: Colour.WARNING, Condition.WRONG: Colour.BAD}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure this disk instead, for some seconds: flush latency, events/s, years; prints a line to share",
    )
    parser.add_argument(
        "--repin",
        action="store_true",
        help="pin the table of the present receipts, whose receipts alone count from then on; stop the agent first",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; return 1 where anything is wrong."""
    settings = load.load(arguments.config)
    if arguments.measure:
        return _measure(settings, as_json=arguments.json)
    if arguments.repin:
        from agent.cli.doctor.receipts import repin

        before, table = repin(settings)
        print(printable(f"pinned {table}" + ("" if before == table else f" instead of {before or 'none'}")))
        return 0
    findings = []
    for finding in examine(settings, arguments.config):
        findings.append(finding)
        if arguments.json:
            print(json_line(asdict(finding)), flush=True)
    if not arguments.json:
        _show(findings)
    return FAILURE if any(finding.condition is Condition.WRONG for finding in findings) else 0


def _show(findings: list[Finding]) -> None:
    rows: list[tuple[str, str, str]] = []
    colours = []
    for finding in findings:
        rows.append((finding.condition, finding.check, printable(finding.text)))
        colours.append(_COLOURS[finding.condition])
        for place, line in enumerate(finding.hint.splitlines()):
            rows.append(("", "", f"{'   ' if place else '-> '}{printable(line)}"))
            colours.append(Colour.FAINT)
    print(terminal.table(rows, colours=colours))
    number = {condition: sum(finding.condition is condition for finding in findings) for condition in Condition}
    wrong, warnings = count(number[Condition.WRONG], "thing"), count(number[Condition.WARNING], "warning")
    colour = Colour.BAD if number[Condition.WRONG] else Colour.GOOD
    print(paint(f"\n{wrong} wrong, {warnings}, {number[Condition.FINE]} fine", colour))


def _measure(settings: Settings, *, as_json: bool) -> int:
    folder = settings.gateway.state_dir
    if database.in_use(folder / FILE_NAME):
        print("oncegate: the agent runs and uses the same disk: its events slow the measurement down", file=sys.stderr)
    found = measure(folder)
    if as_json:
        years = {"single": found.years(found.single), "pack": found.years(found.pack)}
        print(json_line({**asdict(found), "pack_events": PACK, "years_at_1_event_per_second": years}))
        return 0
    print(printable(found.line()))
    if found.doubtful:
        print(paint("a flush this fast does not reach the medium: a power cut may lose its data", Colour.WARNING))
    return 0
