"""A fleet of one hundred thousand gateways: `python -m benchmarks.fleet [--quick] [--only a,b]`.

The queries of its dashboard, the polls of its receipts by a real broker, its restart after a blackout by the product's
backoff in simulated time, and the audit of its epochs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.fleet import epochs, gateways, herd, pollers
from benchmarks.report import Figure


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The sizes of a run."""

    gateways: int
    days: int
    pollers: int
    poll_intervals: Sequence[float]
    poll_seconds: float


FULL = FleetSize(100_000, 7, 10_000, (30.0, 10.0), 20.0)
QUICK = FleetSize(1_000, 1, 200, (2.0, 1.0), 3.0)
PARTS: dict[str, Callable[[Path, FleetSize], Iterable[Figure]]] = {
    "views": lambda folder, size: gateways.figures(folder, size.gateways, size.days),
    "pollers": lambda folder, size: pollers.measure(folder, size.pollers, size.poll_intervals, size.poll_seconds),
    "epochs": lambda folder, size: epochs.figures(folder, size.gateways),
    "herd": lambda _, size: herd.figures(size.gateways),
}


def main() -> int:
    """Run the chosen measurements, print the table, and write the JSON."""
    given = _arguments()
    size = QUICK if given.quick else FULL
    figures: list[Figure] = []
    folder = Path(tempfile.mkdtemp(prefix="oncegate-bench-"))
    folder.chmod(0o755)  # PostgreSQL's server has a user of its own
    try:
        for name in given.only.split(","):
            (folder / name).mkdir()
            figures.extend(PARTS[name](folder / name, size))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if given.quick:
            report.show("fleet", figures)
        elif figures:  # also what was measured before a part has failed
            report.merge("fleet", figures, **asdict(size))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; saves nothing")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas; default: %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
