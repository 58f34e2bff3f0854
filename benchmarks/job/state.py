"""The batches of a run that grows the dedup's state: their sizes and times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from benchmarks.cloud.spark import SMALL_KEYS

_BATCH = re.compile(r"^batch=\d+ rows=(\d+) milliseconds=(\d+) disk=(\d+)$", re.MULTILINE)


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
