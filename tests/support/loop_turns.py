"""Counts what happens within one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTurns:
    """`note` something; `most` is how much was noted within one turn, `total` all of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._noted = 0
        self.most = 0
        self.total = 0

    def note(self) -> None:
        self._noted += 1
        self.total += 1
        self.most = max(self.most, self._noted)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Have a callback in each turn, which begins a new count."""
        self._next()
        try:
            yield
        finally:
            self._handle.cancel()

    def _next(self) -> None:
        self._noted = 0
        self._handle = self._loop.call_soon(self._next)
