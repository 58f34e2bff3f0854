"""The cost of a window: Spark keeps each key for two windows, and scans every key in every batch."""

from __future__ import annotations

import re
from collections import defaultdict
from statistics import median

from benchmarks.cloud.runs import CORES, Bench
from benchmarks.cloud.spark import RETAINED_VERSIONS, SMALL_KEYS
from benchmarks.report import Figure, against

GOAL_BYTES = 60
_BATCH = re.compile(r"^batch=\d+ rows=(\d+) milliseconds=(\d+) disk=(\d+)$", re.MULTILINE)


def window_figures(bench: Bench, keys: int) -> list[Figure]:
    """Grow a state to a number of keys on one core, and on CORES: seconds by keys, and the state's bytes for each."""
    figures = []
    for cores in range(1, CORES + 1):
        curve, known, disk_bytes = read_batches(bench.spark_log("state", keys, cores=cores))
        least, most = min(curve), max(curve)
        by_million = (curve[most] - curve[least]) * cores * 1_000_000 / (most - least)
        on = f"{cores} core{'s' if cores > 1 else ''}"
        details = {"seconds_by_keys": {str(size): seconds for size, seconds in curve.items()}}
        name = f"window, {on}: batch of {SMALL_KEYS:,} keys beside {most:,}"
        figures.append(Figure(name, curve[most], "s", details=details))
        figures.append(Figure(f"window, {on}: each million keys in the state", by_million, "core seconds/batch"))
    return [*figures, against(f"state, disk, {known:,} keys", disk_bytes / known, "bytes/key", GOAL_BYTES)]


def read_batches(log: str) -> tuple[dict[int, float], int, int]:
    """Return the median seconds of small batches by the keys before them; at the end the keys, and their bytes."""
    runs: dict[int, list[float]] = defaultdict(list)
    keys = before = disk_bytes = 0
    for number, found in enumerate(_BATCH.finditer(log)):
        rows, milliseconds, disk_bytes = map(int, found.groups())
        keys += rows  # no key occurs twice
        if rows != SMALL_KEYS:
            before = keys
        elif number:  # the first batch warms up
            runs[before].append(milliseconds / 1000)
    return {size: median(seconds) for size, seconds in runs.items()}, keys, disk_bytes


GOAL_RATIO = 1.3
"""Ratio of a commit on a log of the retention's length to one on a fresh log."""
_COMMIT = re.compile(r"^log round=(\d+) versions=(\d+) seconds=([\d.]+)$", re.MULTILINE)


def log_figures(bench: Bench, versions: int) -> list[Figure]:
    """Time empty commits on logs with up to this number of versions."""
    return read_commits(bench.spark_log("log", versions))


def read_commits(log: str) -> list[Figure]:
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
    name = f"empty commit, the names of {count / 1800:.1f} hours at a trigger of 2 s in the log, by a fresh log"
    goal = GOAL_RATIO if count == RETAINED_VERSIONS else None
    return against(name, median(ratios), "x", goal, versions=count, least=min(ratios), most=max(ratios))
