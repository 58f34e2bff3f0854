"""Wait until no more rows come: a gateway and a job bring what was acked last some time after the ACK."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

LOOK_SECONDS = 2.0
WAIT_SECONDS_MAX = 900.0
"""A backlog that takes longer is judged later, by `oncegate-sim judge`."""


@dataclass(frozen=True, slots=True)
class Passing:
    """The time that passes meanwhile."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


REAL = Passing()


async def stands_still(
    count: Callable[[], Awaitable[int]],
    seconds: float,
    is_stopped: Callable[[], bool] = lambda: False,
    passing: Passing = REAL,
) -> bool:
    """Wait until the count has not changed for so long; return whether it has come to that."""
    begin = passing.now()
    latest = await count()
    moved = passing.now()
    while (now := passing.now()) - moved < seconds:
        if is_stopped() or now - begin >= WAIT_SECONDS_MAX:
            return False
        await passing.sleep(min(LOOK_SECONDS, seconds))
        if (counted := await count()) != latest:
            latest, moved = counted, passing.now()
    return True
