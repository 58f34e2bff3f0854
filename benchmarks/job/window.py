"""The cost of a window: Spark keeps each key for two windows, and scans every key in every batch."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from benchmarks.cloud.runs import CORES, Bench
from benchmarks.cloud.spark import RETAINED_VERSIONS, SMALL_KEYS
from benchmarks.report import Figure, against

WINDOWS_KEPT = 2
"""A key expires one window after it was seen, and the watermark is one window behind the latest batch."""
WINDOWS_MINUTES = (10, 60, 240)
GOAL_BYTES = 60
_RESIDENT = re.compile(r"^resident=(\d+)$", re.MULTILINE)
_BATCH = re.compile(r"^batch=\d+ rows=(\d+) milliseconds=(\d+) disk=(\d+)$", re.MULTILINE)


def window_figures(bench: Bench, keys: int) -> list[Figure]:
    """Grow a state to a number of keys on one core, and on CORES."""
    figures = []
    for cores in range(1, CORES + 1):
        log = bench.spark_log("state", keys, cores=cores)
        figures += read_figures(log, cores)
        if cores == CORES:
            figures += read_state(log)
    return figures


def read_figures(log: str, cores: int) -> list[Figure]:
    """Return seconds per batch, memory, and the cost of a million keys, with the event rate for each window."""
    seen = read_batches(log)
    curve, last = small_batches(seen), seen[-1]
    least, most = min(curve), max(curve)
    by_million = (curve[most] - curve[least]) * cores * 1_000_000 / (most - least)
    [resident] = _RESIDENT.findall(log)
    on = f"{cores} core{'s' if cores > 1 else ''}"
    rates = {f"{minutes}m": most / (WINDOWS_KEPT * minutes * 60) for minutes in WINDOWS_MINUTES}
    details = {"seconds_by_keys": {str(size): seconds for size, seconds in curve.items()}, "events_per_second": rates}
    return [
        Figure(f"window, {on}: batch of {SMALL_KEYS:,} keys beside {most:,}", curve[most], "s", details=details),
        Figure(f"window, {on}: each million keys in the state", by_million, "core seconds/batch"),
        Figure(f"window, {on}: memory of driver and executors, {last.keys:,} keys", int(resident) / 1e6, "MB"),
        Figure(f"window, {on}: state on disk, {last.keys:,} keys", last.disk_bytes / 1e6, "MB"),
    ]


def read_state(log: str) -> list[Figure]:
    """Return the seconds of small batches by the keys in the state, and the state's bytes for each key."""
    seen = read_batches(log)
    curve, last = small_batches(seen), seen[-1]
    empty, full = curve[min(curve)], curve[max(curve)]
    within = max(size for size, seconds in curve.items() if seconds <= 2 * empty)
    details = {"seconds_by_keys": {str(size): seconds for size, seconds in curve.items()}}
    each = last.disk_bytes / last.keys
    return [
        Figure(f"batch of {SMALL_KEYS:,} keys, state empty", empty, "s", details=details),
        Figure(f"batch of {SMALL_KEYS:,} keys, {max(curve):,} keys in the state", full, "s"),
        Figure("keys in the state up to which a small batch takes at most twice as long", within, "keys"),
        against(f"state, disk, {last.keys:,} keys", each, "bytes/key", GOAL_BYTES),
    ]


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch: its rows, its seconds, and the keys and the size of the state after it."""

    rows: int
    seconds: float
    keys: int
    disk_bytes: int


def small_batches(seen: list[Seen]) -> dict[int, float]:
    """Return the median seconds of small batches by the number of keys, without the first batch, which warms up."""
    runs: dict[int, list[float]] = {}
    before = 0
    for one in seen[1:]:
        if one.rows == SMALL_KEYS:
            runs.setdefault(before, []).append(one.seconds)
        else:
            before = one.keys
    return {size: median(seconds) for size, seconds in runs.items()}


def read_batches(log: str) -> list[Seen]:
    """Return the batches of a run in order."""
    seen: list[Seen] = []
    keys = 0
    for found in _BATCH.finditer(log):
        rows, milliseconds, disk = map(int, found.groups())
        keys += rows  # no key occurs twice
        seen.append(Seen(rows, milliseconds / 1000, keys, disk))
    return seen


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
