"""A local run is judged once every receipt has arrived, or receipts stand still."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.judge.remote import Clock
from simulators.run.gateway import GatewayStatus
from simulators.run.play import Stop
from simulators.run.waiting import INTERRUPTED_SECONDS_MAX, STANDSTILL_SECONDS_MAX, wait_for_receipts

EVENTS = 40


class SlowPath:
    """A clock, and a gateway whose events get receipts at a fixed interval, except for `stays` of them."""

    def __init__(self, seconds_each: float, stays: int = 0) -> None:
        self.now = 0.0
        self._each = seconds_each
        self._stays = stays

    def status(self) -> GatewayStatus:
        left = max(self._stays, EVENTS - int(self.now / self._each))
        return GatewayStatus(accepted=EVENTS, duplicates=0, new=0, forwarded=left)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def wait(self, stop: Stop | None = None) -> int:
        clock = Clock(lambda: self.now, self.sleep)
        display = Display(Console(file=io.StringIO()))
        (status,) = await wait_for_receipts([self], display, stop, clock)
        return status.outbox


@pytest.mark.guarantee(0)
async def test_receipts_that_come_slowly_are_all_awaited() -> None:
    path = SlowPath(seconds_each=STANDSTILL_SECONDS_MAX - 1)
    assert await path.wait() == 0
    assert path.now > 30 * STANDSTILL_SECONDS_MAX


async def test_receipts_that_come_no_more_are_missing() -> None:
    path = SlowPath(seconds_each=1, stays=3)
    assert await path.wait() == 3
    assert STANDSTILL_SECONDS_MAX < path.now < EVENTS + STANDSTILL_SECONDS_MAX + 5


async def test_who_interrupts_waits_shorter() -> None:
    stop = Stop()
    stop()
    path = SlowPath(seconds_each=1, stays=3)
    assert await path.wait(stop) == 3
    assert path.now < EVENTS + INTERRUPTED_SECONDS_MAX + 5
