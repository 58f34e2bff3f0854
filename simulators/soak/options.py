"""The command line of a soak."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulators.arguments import add_seed, make_parser, positive, seed_of

_EXAMPLES = """examples:
  make soak HOURS=6
  %(prog)s --hours 0.5 --seed 7
  %(prog)s --hours 2 --delivery exactly-once --lanes
  %(prog)s --hours 8 --keep docs/benchmarks/soak.json
"""


EXACTLY_ONCE = "exactly-once"
DELIVERIES = ("at-least-once", EXACTLY_ONCE)
"""At most once has no receipts, and may lose events."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """The options of a soak."""

    seed: int
    hours: float
    events_per_second: int = 80
    checkpoint_minutes: float = 15.0
    delivery: str = DELIVERIES[0]
    lanes: bool = False
    """Whether the gateway has a second lane, for a quarter of the devices."""
    folder: Path = Path("build/soak")
    keep: Path | None = None
    """The file to which the result is added."""

    @property
    def seconds(self) -> float:
        """How long the sensors report, checkpoints not included."""
        return self.hours * 3600

    @property
    def checkpoint_seconds(self) -> float:
        """The time between two checkpoints."""
        return min(self.checkpoint_minutes * 60, self.seconds)


def parse(arguments: Sequence[str], program: str) -> SoakOptions:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    parser = make_parser(
        program,
        (
            "Run sensors over a bad link, the agent, Kafka and the Spark job on this machine for hours, with random "
            "faults, and compare all evidence at checkpoints. Exit status 0: no fault was found; 1: one was, or there "
            "is no verdict; 2: wrong usage; 130: interrupted."
        ),
        _EXAMPLES,
    )
    defaults = SoakOptions(seed=0, hours=0)
    add = parser.add_argument
    add("--hours", type=_amount, required=True, metavar="N", help="how long the sensors report, such as 0.5")
    add_seed(parser)
    add("--rate", type=positive, default=defaults.events_per_second, metavar="N", help="events/s (%(default)s)")
    add(
        "--checkpoint",
        type=_amount,
        default=defaults.checkpoint_minutes,
        metavar="MINUTES",
        help="time between two checkpoints (%(default)g)",
    )
    add("--delivery", choices=DELIVERIES, default=defaults.delivery, help="the gateway's delivery mode (%(default)s)")
    add("--lanes", action="store_true", help="a second lane, for a quarter of the devices")
    add("--folder", type=Path, default=defaults.folder, metavar="PATH", help="emptied first (%(default)s)")
    add("--keep", type=Path, metavar="FILE", help="add the result to this file, and update the page beside it")
    given = parser.parse_args(arguments)
    return SoakOptions(
        seed_of(given),
        given.hours,
        given.rate,
        given.checkpoint,
        given.delivery,
        given.lanes,
        given.folder,
        given.keep,
    )


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return amount
