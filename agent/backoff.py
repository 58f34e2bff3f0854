"""How long to wait before the next attempt."""

from random import Random
from typing import Final

BACKOFF_SECONDS_FIRST: Final = 0.25
BACKOFF_SECONDS_MAX: Final = 15.0


class Backoff:
    """Waits that double from the first to the longest, each shortened by up to a half at random."""

    def __init__(
        self, random: Random, seconds_first: float = BACKOFF_SECONDS_FIRST, seconds_max: float = BACKOFF_SECONDS_MAX
    ) -> None:
        self._random = random
        self._seconds_first = seconds_first
        self._seconds_max = seconds_max
        self._seconds = seconds_first

    def next_seconds(self) -> float:
        """Return the next wait; gateways that failed together do not come back together."""
        seconds = self._seconds
        self._seconds = min(seconds * 2, self._seconds_max)
        return seconds * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._seconds = self._seconds_first
