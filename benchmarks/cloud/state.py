"""The cost of the dedup's state as it grows: bytes per key, and the time of a small batch, which scans all keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from benchmarks.cloud.runs import Bench
from benchmarks.cloud.spark import SMALL_KEYS
from benchmarks.report import Figure

GOAL_BYTES = 60
_BATCH = re.compile(r"^batch=\d+ rows=(\d+) milliseconds=(\d+) memory=(\d+) disk=(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch: its rows, its seconds, and the size of the state after it."""

    rows: int
    seconds: float
    keys: int
    memory_bytes: int
    disk_bytes: int


def state_figures(bench: Bench, keys: int) -> list[Figure]:
    """Grow a state to a number of keys; return its bytes, and the seconds of small batches meanwhile."""
    log, _cpu = bench.spark_log("state", keys)
    seen = read_batches(log)
    curve = small_batches(seen)
    last = seen[-1]
    empty, full = curve[min(curve)], curve[max(curve)]
    within = [size for size, seconds in curve.items() if seconds <= 2 * empty]
    details = {"seconds_by_keys": {str(size): seconds for size, seconds in curve.items()}}
    memory = max(one.memory_bytes for one in seen)  # 0 where Spark does not report it: then there is no figure
    return [
        Figure(f"batch of {SMALL_KEYS:,} keys, state empty", empty, "s", details=details),
        Figure(f"batch of {SMALL_KEYS:,} keys, {max(curve):,} keys in the state", full, "s"),
        Figure("keys in the state up to which a small batch takes at most twice as long", max(within), "keys"),
        _bytes("disk", last.disk_bytes, last.keys),
        *([_bytes("memory", memory, last.keys)] if memory else []),
    ]


def _bytes(where: str, size: int, keys: int) -> Figure:
    each = size / max(1, keys)
    return Figure(f"state, {where}, {keys:,} keys", each, "bytes/key", f"<= {GOAL_BYTES}", each <= GOAL_BYTES)


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
        rows, milliseconds, memory, disk = map(int, found.groups())
        keys += rows  # no key occurs twice
        seen.append(Seen(rows, milliseconds / 1000, keys, memory, disk))
    return seen
