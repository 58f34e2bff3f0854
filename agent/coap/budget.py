"""A bound on how often something may happen."""

from __future__ import annotations

from dataclasses import dataclass


class Budget:
    """A token bucket that holds one second's worth."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._counted = now

    def take(self, now: float) -> bool:
        """Take one, if one is left."""
        self._left = min(self._per_second, self._left + (now - self._counted) * self._per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Budgets:
    """What of aiocoap's time plain requests may take, and what those under OSCORE: neither can starve the other."""

    plain: Budget
    protected: Budget
