import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from simulators.judge.remote import Clock
from simulators.ledger import Ledger, Reported, read
from simulators.run.gateway import GatewayStatus
from simulators.run.play import Reports, clock, sensors
from simulators.run.waiting import INTERRUPTED_SECONDS_MAX, STANDSTILL_SECONDS_MAX, wait_for_receipts
from simulators.scenario import FleetPlan, Scenario, SensorKind
from simulators.sensors.field import Targets
from tests.simulators.run.minimal_gateway import minimal_gateway
from tests.support.waiting import until_count

SCENARIO = Scenario(
    "late", "A fault that ends late.", 0.2, (FleetPlan(SensorKind.COAP, sensors=2, every_seconds=0.02),), speed=200
)


@asynccontextmanager
async def reporting(folder: Path, reports: Reports) -> AsyncIterator[Ledger]:
    """Run the scenario's sensors within the block, and await their end."""
    with Ledger(folder / "ledger.jsonl", clock) as ledger:
        async with minimal_gateway() as gateway:
            playing = asyncio.ensure_future(
                sensors(SCENARIO, 1, ledger, Targets(coap=gateway.address), asyncio.Event(), reports=reports)
            )
            yield ledger
            assert not playing.done()
            reports.suffice.set()
            await playing


async def until_reported(ledger: Ledger, count: int) -> None:
    await until_count(lambda: ledger.counts.events, count, "events", or_more=True)


async def test_sensors_report_until_the_last_fault_has_been_played(tmp_path: Path) -> None:
    async with reporting(tmp_path, Reports()) as ledger:
        await until_reported(ledger, 200)  # some 20 are due within the scenario's time

    reported = [line for line in read(tmp_path / "ledger.jsonl") if isinstance(line, Reported)]
    assert len(reported) >= 200
    assert ledger.counts.acked == len(reported)


async def test_while_reports_pause_none_begins_and_what_was_due_follows(tmp_path: Path) -> None:
    reports = Reports()
    async with reporting(tmp_path, reports) as ledger:
        await until_reported(ledger, 1)
        async with reports.paused():
            before = ledger.counts.events
            await asyncio.sleep(5 * SCENARIO.seconds)  # in which some hundred are due
            assert ledger.counts.events == before
        await until_reported(ledger, before + 100)
    assert ledger.counts.acked == ledger.counts.events


async def test_sensors_report_no_longer_than_the_scenario_where_no_fault_is_left(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.jsonl", clock) as ledger:
        async with minimal_gateway() as gateway:
            await sensors(SCENARIO, 1, ledger, Targets(coap=gateway.address), asyncio.Event())
    assert 0 < ledger.counts.events < 100


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

    async def wait(self, is_stopped: Callable[[], bool] = lambda: False) -> int:
        clock = Clock(lambda: self.now, self.sleep)
        display = Display(Console(file=io.StringIO()))
        (status,) = await wait_for_receipts([self], display, is_stopped, clock)
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
    path = SlowPath(seconds_each=1, stays=3)
    assert await path.wait(lambda: True) == 3
    assert path.now < EVENTS + INTERRUPTED_SECONDS_MAX + 5
