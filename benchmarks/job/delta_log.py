"""The cost of a commit of the Delta table as its log grows: every commit lists the whole log."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from benchmarks.cloud.runs import Bench
from benchmarks.cloud.spark import RETAINED_VERSIONS
from benchmarks.report import Figure

GOAL_RATIO = 1.3
"""Ratio of a commit on a log of the retention's length to one on a fresh log."""
_COMMIT = re.compile(r"^log round=(\d+) versions=(\d+) seconds=([\d.]+)$", re.MULTILINE)


def log_figures(bench: Bench, versions: int) -> list[Figure]:
    """Time empty commits on logs with up to this number of versions."""
    return read_figures(bench.spark_log("log", versions))


def read_figures(log: str) -> list[Figure]:
    """Return each ratio as the median over the rounds: within a round all tables run under the same load."""
    rounds: dict[int, dict[int, float]] = defaultdict(dict)
    for number, count, seconds in _COMMIT.findall(log):
        rounds[int(number)][int(count)] = float(seconds)
    counts = sorted(next(iter(rounds.values())))
    return [
        Figure(f"empty commit, fresh log, median of {len(rounds)}", median(one[0] for one in rounds.values()), "s"),
        *(_ratio(count, [one[count] / one[0] for one in rounds.values()]) for count in counts[1:]),
    ]


def _ratio(count: int, ratios: list[float]) -> Figure:
    ratio, is_retained = median(ratios), count == RETAINED_VERSIONS
    name = f"empty commit, the names of {count / 1800:.1f} hours at a trigger of 2 s in the log, by a fresh log"
    goal, reached = (f"<= {GOAL_RATIO}", ratio <= GOAL_RATIO) if is_retained else ("", None)
    return Figure(name, ratio, "x", goal, reached, {"versions": count, "least": min(ratios), "most": max(ratios)})
