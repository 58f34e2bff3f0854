"""What a commit of the Delta table costs as its log grows: every commit lists all of it."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from benchmarks.cloud.runs import Bench
from benchmarks.report import Figure

GOAL_RATIO = 1.5
"""A commit on a log of the retention's length, by one on a fresh log."""
RETAINED_VERSIONS = 10_800
_COMMIT = re.compile(r"^log versions=(\d+) seconds=([\d.]+)$", re.MULTILINE)


def log_figures(bench: Bench, versions: int) -> list[Figure]:
    """Time empty commits beside the names of up to so many versions."""
    log, _cpu = bench.spark_log("log", versions)
    seconds: dict[int, list[float]] = defaultdict(list)
    for found in _COMMIT.finditer(log):
        seconds[int(found[1])].append(float(found[2]))
    medians = {count: median(times) for count, times in seconds.items()}
    figures = [Figure(f"empty commit, {count:,} versions in the log", value, "s") for count, value in medians.items()]
    if RETAINED_VERSIONS in medians:
        ratio = medians[RETAINED_VERSIONS] / medians[0]
        name = f"empty commit, {RETAINED_VERSIONS:,} versions (6 hours at a trigger of 2 s) by a fresh log"
        figures.append(Figure(name, ratio, "x", f"<= {GOAL_RATIO}", ratio <= GOAL_RATIO))
    return figures
