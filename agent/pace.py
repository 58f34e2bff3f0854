"""Bounds the time that one protocol takes in each turn of the event loop."""

import asyncio
from typing import Final

TURN_SECONDS_MAX: Final = 0.01
"""After which no further message is begun. The slowest known bodies take some 20 ms, so other tasks wait some 30 ms."""


class Pace:
    """Distributes the coroutines of one protocol over the loop's turns: many may be ready at once (decision 59)."""

    def __init__(self) -> None:
        self._ends: float | None = None
        """When the time of this turn of the loop is used up; None before the first coroutine of a turn."""

    async def turn(self) -> None:
        """Return when there is time in a turn of the loop: this one, or a later one, in the order of the calls."""
        while not self.has_time():  # noqa: ASYNC110  # the next turn is waited for
            await asyncio.sleep(0)

    def has_time(self) -> bool:
        """Whether there is time in this turn of the loop, whose time begins with the first call."""
        loop = asyncio.get_running_loop()
        if self._ends is None:
            self._ends = loop.time() + TURN_SECONDS_MAX
            loop.call_soon(self._end)  # in the next turn, before the waiting coroutines
            return True
        return loop.time() < self._ends

    def _end(self) -> None:
        self._ends = None
