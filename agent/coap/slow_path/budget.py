"""Token buckets that limit the slow path."""

from __future__ import annotations

from dataclasses import dataclass


class Budget:
    """A token bucket with a capacity of one second."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._counted = now

    def take(self, now: float) -> bool:
        """Take a token; return False where none is left."""
        self._left = min(self._per_second, self._left + (now - self._counted) * self._per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Budgets:
    """Separate budgets for plain requests and those under OSCORE, so that neither can starve the other."""

    plain: Budget
    protected: Budget
