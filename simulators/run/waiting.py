"""Wait, on this machine, until what was acked has come to the end of the path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from simulators.display import Display
from simulators.evidence.receipts import behind
from simulators.judge.standstill import REAL_CLOCK, Clock
from simulators.run.gateway import GatewayStatus
from simulators.run.play import Stop
from simulators.run.services import Services

LOOK_SECONDS = 0.5
STANDSTILL_SECONDS_MAX = 180.0
"""How long no receipt may come until those that are missing count as missing: many batches of a slow machine."""
INTERRUPTED_SECONDS_MAX = 20.0


class HasStatus(Protocol):
    """A gateway that tells what its store holds."""

    def status(self) -> GatewayStatus:
        """Return what the store holds."""


async def wait_for_job(services: Services, stop: Stop | None = None) -> None:
    """Wait until a job that was started reads the topic: a job that still starts has lost nothing."""
    if "job" not in services.down and not (stop is not None and stop.asked.is_set()):
        await asyncio.to_thread(services.job.wait)


async def wait_for_receipts(
    gateways: Sequence[HasStatus], display: Display, stop: Stop | None = None, clock: Clock = REAL_CLOCK
) -> Sequence[GatewayStatus]:
    """Wait until every event has its receipt, or none has come for long; return what the gateways say then."""
    display.phase("waiting for the last receipts")
    latest, moved = -1, clock.now()
    while True:
        statuses = [await asyncio.to_thread(gateway.status) for gateway in gateways]
        outbox = sum(status.outbox for status in statuses)
        accepted = sum(status.accepted for status in statuses)
        display.count(accepted - outbox, accepted, f"{outbox:,} events without a receipt")
        if outbox != latest:
            latest, moved = outbox, clock.now()
        limit = INTERRUPTED_SECONDS_MAX if stop is not None and stop.asked.is_set() else STANDSTILL_SECONDS_MAX
        if outbox == 0 or clock.now() - moved > limit:
            return statuses
        await clock.sleep(LOOK_SECONDS)


async def wait_for_table(services: Services, display: Display, clock: Clock = REAL_CLOCK) -> None:
    """Wait until the table has what is in the topic: where there are no receipts, nobody else tells."""
    display.phase("waiting for the table")
    latest, moved = -1, clock.now()
    while left := await asyncio.to_thread(behind, services.broker.bootstrap_servers, services.job.table):
        if left != latest:
            latest, moved = left, clock.now()
        if clock.now() - moved > STANDSTILL_SECONDS_MAX:
            return
        await clock.sleep(LOOK_SECONDS)
