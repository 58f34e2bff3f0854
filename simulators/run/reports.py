"""What the faults of a run require of its sensors' reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Reports:
    """Sensors report until no fault needs them any longer, and pause while a card is being replaced."""

    def __init__(self) -> None:
        self.enabled = asyncio.Event()
        self.enabled.set()
        self.suffice = asyncio.Event()
        """Set once every fault has been played, with reports after it where it needs some."""
        self._pausing = asyncio.Lock()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Hold new reports within the block, one block after the other; transmissions of earlier ones continue.

        Those that fell due follow at once.
        """
        async with self._pausing:
            self.enabled.clear()
            try:
                yield
            finally:
                self.enabled.set()
