"""How long the commits took, as a histogram."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""From the flush of a good disk to that of a card that is about to fail."""


class CommitDurations:
    """A histogram; one thread writes it, any thread may read it."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one commit."""
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds

    @classmethod
    def total(cls, of_stores: Sequence[CommitDurations]) -> CommitDurations:
        """Return the durations of several stores, as of now."""
        total = cls()
        for one in of_stores:
            total._counts = [before + count for before, count in zip(total._counts, one._counts, strict=True)]
            total.total_seconds += one.total_seconds
        return total

    def cumulative(self) -> list[tuple[float, int]]:
        """Return for each upper bound, infinity last, how many commits took at most that long."""
        bounds, so_far = [], 0
        for bound, count in zip((*BOUNDS_SECONDS, float("inf")), tuple(self._counts), strict=True):
            so_far += count
            bounds.append((bound, so_far))
        return bounds
