"""The cost of a window: Spark keeps each key for two windows, and scans every key in every batch."""

from __future__ import annotations

import re

from benchmarks.cloud.runs import CORES, Bench
from benchmarks.cloud.spark import SMALL_KEYS
from benchmarks.job.state import read_batches, small_batches
from benchmarks.report import Figure

WINDOWS_KEPT = 2
"""A key expires one window after it was seen, and the watermark is one window behind the latest batch."""
WINDOWS_MINUTES = (10, 60, 240)
GOAL_BYTES = 60
_RESIDENT = re.compile(r"^resident=(\d+)$", re.MULTILINE)


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
        Figure(f"state, disk, {last.keys:,} keys", each, "bytes/key", f"<= {GOAL_BYTES}", each <= GOAL_BYTES),
    ]
