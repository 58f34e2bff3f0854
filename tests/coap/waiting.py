"""Wait for conditions, never for time, while the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

POLL_SECONDS = 0.005


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait until the condition holds; fail with what was awaited."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(POLL_SECONDS)
