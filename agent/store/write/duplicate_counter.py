"""The duplicates that were recognised, until a transaction carries them to the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from agent.store.fingerprints.fingerprint_rows import NO_DUPLICATES, REPEATS_MAX, Duplicate, DuplicateTotals


class DuplicateCounter:
    """Counts all duplicates, and keeps the latest few one by one; runs on the writer's thread.

    `transport_duplicates` returns how many the transports have recognised and answered themselves since the start.
    """

    def __init__(self, transport_duplicates: Callable[[], int] = int) -> None:
        self._transport_duplicates = transport_duplicates
        self._recognised = 0
        self._written = 0
        self._latest: deque[Duplicate] = deque(maxlen=REPEATS_MAX)

    def note(self, received: int, positions: list[int]) -> None:
        """Count duplicates of the events at these positions, for the next transaction."""
        self._recognised += len(positions)
        self._latest.extend(Duplicate(received, position) for position in positions)

    def pending(self) -> DuplicateTotals:
        """Return the counts that no transaction has written yet."""
        return DuplicateTotals(self._recognised + self._transport_duplicates() - self._written, tuple(self._latest))

    def has_pending(self) -> bool:
        """Whether there is something that no transaction has carried yet."""
        return self.pending() != NO_DUPLICATES

    def written(self, totals: DuplicateTotals) -> None:
        """Note that these are on disk."""
        self._written += totals.count
        self._latest.clear()
