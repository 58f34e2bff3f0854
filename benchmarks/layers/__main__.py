"""Run one field test in each delivery mode, and without the dedup of the agent, of the job, or of both."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks import report
from simulators.display import Display
from simulators.run.options import RunOptions
from simulators.run.run import run
from simulators.run.services import Overrides
from simulators.scenario import find
from simulators.terminal import open_console

SCENARIO, SEED = "layers", 7
FIGURES = ("events", "transmissions", "acked", "records", "repeats", "rows", "lost", "doubled")
"""The compared fields of a verdict; `repeats` are records in Kafka that repeat an earlier label."""
_AGENT = ("benchmarks.layers.patches:agent_without_dedup",)
_JOB = ("benchmarks.layers.patches:job_without_dedup",)


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the same field test."""

    name: str
    description: str
    overrides: Overrides


VARIANTS = (
    Variant("at-least-once", "the default mode", Overrides()),
    Variant("exactly-once", "Kafka transactions, for readers of the topic", Overrides(delivery="exactly-once")),
    Variant("at-most-once", "sent once, without retries", Overrides(delivery="at-most-once")),
    Variant("no-agent-dedup", "the gateway recognises no resend", Overrides(agent_patches=_AGENT)),
    Variant("no-cloud-dedup", "the job writes every record", Overrides(job_patches=_JOB)),
    Variant("no-dedup", "neither recognises a duplicate", Overrides(agent_patches=_AGENT, job_patches=_JOB)),
)


def main() -> int:
    """Run the variants, print their counts and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layers", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/layers"), metavar="PATH", help="%(default)s")
    home = parser.parse_args().folder
    console = open_console()
    table = Table("", *FIGURES)
    outcomes = []
    for variant in VARIANTS:
        console.rule(f"{variant.name}, {variant.description}")
        options = RunOptions(find(SCENARIO), SEED, home / variant.name, overrides=variant.overrides)
        with Display(console) as display:
            verdict = asyncio.run(run(options, display, asyncio.Event()))
        counts = {name: getattr(verdict, name) or 0 for name in FIGURES}
        table.add_row(variant.name, *(f"{count:,}" for count in counts.values()))
        outcomes.append({"variant": variant.name, "description": variant.description, **counts})
    console.print(table)
    kept = {"benchmark": "layers", "scenario": SCENARIO, "seed": SEED, "outcomes": outcomes}
    (report.FOLDER / "layers.json").write_text(json.dumps(kept, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
