"""Waits until no more rows arrive: the last events reach the table some time after their ACKs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

POLL_SECONDS = 2.0
WAIT_SECONDS_MAX = 900.0
"""A longer backlog can be judged later, by `oncegate-sim judge`."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a wait; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


REAL_CLOCK = Clock()


async def stands_still(
    count: Callable[[], Awaitable[int]],
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Clock = REAL_CLOCK,
) -> bool:
    """Wait until the count has not changed for `seconds`; return whether that happened."""
    begin = clock.now()
    latest = await count()
    moved = clock.now()
    while (now := clock.now()) - moved < seconds:
        if is_stopped() or now - begin >= WAIT_SECONDS_MAX:
            return False
        await clock.sleep(min(POLL_SECONDS, seconds))
        if (counted := await count()) != latest:
            latest, moved = counted, clock.now()
    return True
