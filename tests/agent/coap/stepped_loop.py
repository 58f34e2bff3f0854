"""The running loop with a clock that the test advances: waits of minutes are tested in milliseconds."""

import asyncio
from typing import Self

TURNS = 5
"""Of the loop: enough for due timers, and for the callbacks that they schedule."""


class SteppedLoop:
    """`with SteppedLoop() as clock`, then `await clock.advance(seconds)`: due timers run."""

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._real = self._loop.time
        self._ahead = 0.0
        self._loop.time = lambda: self._real() + self._ahead  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.time = self._real  # type: ignore[method-assign]

    def step(self, seconds: float) -> None:
        """Advance the clock, as work of this duration would."""
        self._ahead += seconds

    async def advance(self, seconds: float) -> None:
        self.step(seconds)
        for _ in range(TURNS):
            await asyncio.sleep(0)
