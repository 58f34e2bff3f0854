"""The output of a benchmark: a table, and JSON with a description of the machine."""

import argparse
import json
import os
import platform
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent.parent / "docs" / "benchmarks"
"""The folder of the results, one JSON file per benchmark."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure: name, value, unit, and goal (text, empty without one)."""

    name: str
    value: float
    unit: str
    goal: str = ""
    reached: bool | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def against(
    name: str, value: float, unit: str, goal: float | None = None, *, at_least: bool = False, **details: object
) -> Figure:
    """Return a figure and whether it reaches its goal, which is a maximum, or with `at_least` a minimum."""
    if goal is None:
        return Figure(name, value, unit, details=details)
    reached = value >= goal if at_least else value <= goal
    return Figure(name, value, unit, f"{'≥' if at_least else '≤'} {goal:,g}", reached, details)


def middle(
    name: str, each: Sequence[float], unit: str, goal: float | None = None, *, at_least: bool = False, **details: object
) -> Figure:
    """Return the median over the rounds as a figure, with the value of each round in its details."""
    return against(name, median(each), unit, goal, at_least=at_least, each=list(each), **details)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return quantiles(values, n=100)[98]


def parser(name: str, text: str | None, parts: Iterable[str] = (), rounds: int = 1) -> argparse.ArgumentParser:
    """Return a parser with --quick, with --only where a benchmark has parts, with --rounds where it has several."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=(text or "").splitlines()[0])
    made.set_defaults(began=time.monotonic(), parts=tuple(parts), only=tuple(parts), rounds=rounds)
    made.add_argument("--quick", action="store_true", help="one round and small sizes; nothing is kept")
    if parts:
        made.add_argument("--only", nargs="+", choices=parts, help="these; nothing is kept")
    if rounds > 1:
        made.add_argument("--rounds", type=int, help=f"how often each contender runs (default: {rounds})")
    return made


def parse(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments."""
    given = made.parse_args()
    if given.quick:
        given.rounds = 1
    return given


def machine() -> dict[str, object]:
    """Return a description of the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if "model name" in line),
        platform.machine(),
    )
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "load": os.getloadavg()[0],
    }


def progress(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def conclude(
    name: str,
    figures: Sequence[Figure],
    given: argparse.Namespace,
    failed: Sequence[str] = (),
    **settings: object,
) -> int:
    """Print the figures as a table, and keep those of a whole run; return the exit status, 1 where one has failed."""
    minutes = round((time.monotonic() - given.began) / 60, 1)
    table = Table("figure", "measured", "rounds", "unit", "goal", "", title=f"bench-{name}")
    for figure in figures:
        verdict = {True: "reached", False: "missed", None: ""}[figure.reached]
        table.add_row(figure.name, _written(figure.value), _spread(figure), figure.unit, figure.goal, verdict)
    Console().print(table)
    progress(f"bench-{name}: {minutes} minutes; failed: {', '.join(failed) or 'nothing'}")
    if given.quick or set(given.only) != set(given.parts):
        return 1 if failed else 0
    kept = {
        "benchmark": name,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "settings": {**settings, "minutes": minutes, "failed": list(failed)},
        "figures": [asdict(figure) for figure in figures],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n")
    return 1 if failed else 0


@contextmanager
def build_folder() -> Iterator[Path]:
    """Provide a temporary folder on the disk of this checkout."""
    build = FOLDER.parents[1] / "build"
    build.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=build, prefix="bench-") as name:
        yield Path(name)


@contextmanager
def folder() -> Iterator[Path]:
    """Provide a temporary folder that servers with a user of their own can enter."""
    with TemporaryDirectory(prefix="oncegate-bench-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _spread(figure: Figure) -> str:
    """Return the lowest and the highest value of the rounds, where there were some."""
    each = figure.details.get("each")
    return f"{_written(min(each))} to {_written(max(each))}" if isinstance(each, list) and len(each) > 1 else ""


def _written(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
