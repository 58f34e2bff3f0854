"""Waits, in a local run, until acked events have reached the end of the path."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from simulators.display import Display
from simulators.errors import RunError
from simulators.judge.remote import REAL_CLOCK, Clock
from simulators.run.gateway import GatewayStatus
from simulators.run.job import START_SECONDS_MAX
from simulators.run.services import Services

POLL_SECONDS = 0.5
STANDSTILL_SECONDS_MAX = 180.0
"""Without a receipt for this long, the outstanding ones count as missing: many batches of a slow machine."""
INTERRUPTED_SECONDS_MAX = 20.0


class HasStatus(Protocol):
    """A gateway whose status can be read."""

    def status(self) -> GatewayStatus:
        """Return the status of the store."""


async def wait_for_job(services: Services, is_stopped: Callable[[], bool], clock: Clock = REAL_CLOCK) -> None:
    """Wait until the job reads the topic, also while a supervisor starts it: until then no event is missing.

    Raise RunError where it does not read within START_SECONDS_MAX.
    """
    job, deadline = services.job, clock.now() + START_SECONDS_MAX
    while not (job.process.alive and job.reads) and not is_stopped():
        if clock.now() > deadline:
            raise RunError(f"job: does not read within {START_SECONDS_MAX:g} s; {job.process.log_tail()}")
        await clock.sleep(POLL_SECONDS)


async def wait_for_receipts(
    gateways: Sequence[HasStatus],
    display: Display,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Clock = REAL_CLOCK,
    standstill_seconds_max: float = STANDSTILL_SECONDS_MAX,
) -> Sequence[GatewayStatus]:
    """Wait until every event has its receipt, or no receipt arrives any more; return the final statuses."""
    display.phase("waiting for the last receipts")
    latest, moved = -1, clock.now()
    while True:
        statuses = [await asyncio.to_thread(gateway.status) for gateway in gateways]
        outbox = sum(status.outbox for status in statuses)
        accepted = sum(status.accepted for status in statuses)
        display.count(accepted - outbox, accepted, f"{outbox:,} events without a receipt")
        if outbox != latest:
            latest, moved = outbox, clock.now()
        limit = INTERRUPTED_SECONDS_MAX if is_stopped() else standstill_seconds_max
        if outbox == 0 or clock.now() - moved > limit:
            return statuses
        await clock.sleep(POLL_SECONDS)
