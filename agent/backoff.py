"""The wait before the next attempt: exponential backoff with jitter."""

from random import Random
from typing import Final

BACKOFF_SECONDS_FIRST: Final = 0.25
BACKOFF_SECONDS_MAX: Final = 15.0


class Backoff:
    """Waits that double from the first to the longest, each shortened at random by up to a half."""

    def __init__(self, random: Random, seconds_max: float = BACKOFF_SECONDS_MAX) -> None:
        self._random = random
        self._seconds_max = seconds_max
        self._seconds = BACKOFF_SECONDS_FIRST

    def next_seconds(self) -> float:
        """Return the next wait, with jitter, so that gateways that failed together do not retry together."""
        seconds = self._seconds
        self._seconds = min(seconds * 2, self._seconds_max)
        return seconds * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._seconds = BACKOFF_SECONDS_FIRST
