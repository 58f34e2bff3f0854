"""The copies that were recognised, until a transaction carries them to the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from agent.store.fingerprints.rows import NO_COPIES, REPEATS_MAX, Copies, Duplicate


class CopyCount:
    """Counts all, and notes the latest few one by one; lives on the writer's thread."""

    def __init__(self) -> None:
        self.at_the_door: Callable[[], int] = int
        """Counts the copies that the ways in have recognised and answered themselves since the start."""
        self._recognised = 0
        self._written = 0
        self._latest: deque[Duplicate] = deque(maxlen=REPEATS_MAX)

    def add(self, copies: int) -> None:
        """Count copies."""
        self._recognised += copies

    def note(self, received: int, positions: list[int]) -> None:
        """Note copies of events at these positions, for the next transaction to carry."""
        self._latest.extend(Duplicate(received, position) for position in positions)

    def pending(self) -> Copies:
        """Return what no transaction has carried yet."""
        return Copies(self._recognised + self.at_the_door() - self._written, tuple(self._latest))

    def has_pending(self) -> bool:
        """Whether there is something that no transaction has carried yet."""
        return self.pending() != NO_COPIES

    def written(self, copies: Copies) -> None:
        """Take note that these are on disk."""
        self._written += copies.count
        self._latest.clear()
