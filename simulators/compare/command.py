"""`oncegate-sim compare`: run one scenario and seed once for each variant, and draw the results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simulators.arguments import add_seed, make_parser, seed_of
from simulators.compare.picture import draw
from simulators.compare.variants import VARIANTS, Outcome, Variant, outcome
from simulators.display import Display
from simulators.run.options import RunOptions
from simulators.run.run import run
from simulators.run.stop import Stop
from simulators.scenario import Scenario, find
from simulators.strict_toml import TomlError
from simulators.terminal import FAILED, INTERRUPTED, KNOWN_ERRORS, flat, open_console

RESULT_FILE, PICTURE_FILE = "compare.json", "compare.svg"

_EXAMPLES = """examples:
  %(prog)s brownouts --seed 7
  %(prog)s lost-acks --only at-least-once --only no-dedup
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Compare the variants and return the exit status: 0 if all of them ran, with any verdicts."""
    description = "Run one scenario and seed in each delivery mode, and without dedup, on this machine."
    parser = make_parser(program, description, _EXAMPLES)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("scenario", metavar="SCENARIO", help="a TOML file, or a name of `oncegate-sim scenarios`")
    add_seed(parser)
    parser.add_argument("--folder", type=Path, default=Path("build/compare"), metavar="PATH", help="%(default)s")
    parser.add_argument("--only", action="append", choices=names, help="one variant; may be given more than once")
    given = parser.parse_args(arguments)
    try:
        scenario = find(given.scenario)
    except TomlError as error:
        parser.error(str(error))
    chosen = [variant for variant in VARIANTS if not given.only or variant.name in given.only]
    console = open_console()
    seed = seed_of(given)
    console.print(f"seed {seed}; {len(chosen)} runs of {scenario.name}")
    return _compare(chosen, scenario, seed, given.folder, console)


def _compare(chosen: Sequence[Variant], scenario: Scenario, seed: int, home: Path, console: Console) -> int:
    outcomes: list[Outcome] = []
    for number, variant in enumerate(chosen, start=1):
        console.rule(f"{number} of {len(chosen)}: {variant.name}, {variant.description}")
        options = RunOptions(scenario, seed, home / variant.name, overrides=variant.overrides)
        try:
            with Display(console) as display:
                outcomes.append(outcome(variant, asyncio.run(run(options, display, Stop()))))
        except KeyboardInterrupt:
            return INTERRUPTED
        except KNOWN_ERRORS as error:
            console.print(f"{variant.name} failed: {error}", soft_wrap=True)
            return FAILED
        except ExceptionGroup as group:
            for inner in flat(group):
                console.print(f"{variant.name} failed: {inner!r}", soft_wrap=True)
            return FAILED
        _keep(outcomes, scenario, seed, home)
    console.print(_table(outcomes))
    console.print(f"figures: {home / RESULT_FILE}   picture: {home / PICTURE_FILE}", soft_wrap=True)
    return 0


def _keep(outcomes: Sequence[Outcome], scenario: Scenario, seed: int, home: Path) -> None:
    result = {"scenario": scenario.name, "seed": seed, "outcomes": [asdict(one) for one in outcomes]}
    (home / RESULT_FILE).write_text(json.dumps(result, indent=2) + "\n")
    draw(outcomes, home / PICTURE_FILE)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("", "events", "transmissions", "acked", "records in Kafka", "rows", "lost", "doubled")
    for one in outcomes:
        counts = (one.events, one.transmissions, one.acked, one.records, one.rows, one.lost, one.doubled)
        table.add_row(one.variant, *(f"{count:,}" for count in counts))
    return table
