"""Counts events per turn of the event loop."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.agent.coap.stepped_loop import SteppedLoop


class LoopTurns:
    """Counts calls of `note`: `most` is the largest number within one turn, `total` the sum."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._noted = 0
        self.most = 0
        self.total = 0

    def note(self) -> None:
        self._noted += 1
        self.total += 1
        self.most = max(self.most, self._noted)

    def working(self, clock: SteppedLoop, seconds: float) -> Callable[[], None]:
        """Return work that is noted, and takes its time on the loop's clock."""

        def work() -> None:
            self.note()
            clock.step(seconds)

        return work

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Start a new count in each turn, by a callback."""
        self._next()
        try:
            yield
        finally:
            self._handle.cancel()

    def _next(self) -> None:
        self._noted = 0
        self._handle = self._loop.call_soon(self._next)
