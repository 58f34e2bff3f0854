"""Injects a scenario's faults into the services of this machine, each at its moment."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulators.display import Display
from simulators.errors import RunError
from simulators.evidence import receipts
from simulators.evidence.topic import TopicError
from simulators.ledger import Ledger
from simulators.oracle.evidence_database import AHEAD, RESTORED
from simulators.run.gateway import Gateway
from simulators.run.play import Reports
from simulators.run.services import Services
from simulators.scenario import Fault, FaultKind, FaultTarget
from simulators.services.service import ProcessService

EMPTY_SECONDS_MAX = 60.0
BATCH_SECONDS_MAX = 60.0
INTO_BATCH_SECONDS = 1.0
POLL_SECONDS = 0.2
OVER_SECONDS = 1.0
"""How often a player checks whether the run is over."""
RESTORED_SECONDS = 5.0
"""How long sensors report to a restored card at least: repeated labels appear with new events only."""


async def play(
    faults: Sequence[Fault],
    services: Services,
    ledger: Ledger,
    display: Display,
    reports: Reports,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Inject all faults, or those before `is_over`; return when every service runs again."""
    async with asyncio.TaskGroup() as tasks:
        for target in FaultTarget:
            own = sorted((fault for fault in faults if fault.target is target), key=lambda fault: fault.at)
            player = _FaultPlayer(target, services, ledger, display, reports)
            tasks.create_task(player.play(own, is_over), name=f"faults of {target}")


async def note_receipts_ahead(services: Services, ledger: Ledger, display: Display) -> None:
    """Count receipts in Kafka for records that the table lacks, and record their number in the ledger."""
    if FaultTarget.KAFKA in services.down:
        return  # the receipts cannot be read
    try:
        ahead = await asyncio.to_thread(receipts.ahead, services.broker.bootstrap_servers, services.job.table)
    except TopicError:
        if FaultTarget.KAFKA in services.down:
            return
        raise
    if ahead:
        ledger.happened(FaultTarget.JOB, f"{AHEAD}{ahead}")
        display.fact(f"{FaultTarget.JOB}: {AHEAD}{ahead}")


@dataclass(frozen=True, slots=True)
class _FaultPlayer:
    """Injects the faults of one target, one after the other."""

    _target: FaultTarget
    _services: Services
    _ledger: Ledger
    _display: Display
    _reports: Reports

    async def play(self, faults: Sequence[Fault], is_over: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for fault in faults:
            # A supervisor may be starting the service, which it notes as down meanwhile.
            while (seconds := begin + fault.at - loop.time()) > 0 or self._target in self._services.down:
                if is_over():
                    return
                await asyncio.sleep(min(max(seconds, POLL_SECONDS), OVER_SECONDS))
            await self._happen(fault)

    async def _happen(self, fault: Fault) -> None:
        match fault.kind:
            case FaultKind.KILL:
                if self._target is FaultTarget.JOB:
                    await self._reach_batch()
                await self._take_down("killed", self._service.kill, fault.seconds)
            case FaultKind.RESTART | FaultKind.DOWN:
                await self._take_down("stopped", self._service.stop, fault.seconds)
            case FaultKind.FREEZE:
                await asyncio.to_thread(self._service.pause)
                self._record("frozen")
                await asyncio.sleep(fault.seconds)
                await asyncio.to_thread(self._service.resume)
                self._record("resumed")
            case FaultKind.DISK_FULL:
                await self._fill_disk(fault.seconds)
            case FaultKind.CLOCK:
                self._gateway.set_clock(fault.by_seconds)
                self._record(f"clock {fault.by_seconds:+.0f} s")
            case FaultKind.BACKUP:
                await self._take_down("copied", self._gateway.back_up, 0.0)
            case FaultKind.RESTORE:
                await self._restore()

    async def _fill_disk(self, seconds: float) -> None:
        """Fill the disk for a while; restart an agent that ends because of it, as its supervisor would."""
        self._services.take_down(self._target)
        self._gateway.limit_disk(full=True)
        self._record("disk full")
        await asyncio.sleep(seconds)
        if self._service.process.alive:
            self._gateway.limit_disk(full=False)
            self._record("disk has space")
        else:
            self._record(f"had ended with status {self._service.process.exit_status}; disk has space, started again")
            await asyncio.to_thread(self._service.start)
        self._services.down.discard(self._target)

    async def _take_down(self, what: str, end: Callable[[], None], seconds: float) -> None:
        if self._target in self._services.down:
            return  # it has ended by itself, and its supervisor is about to start it
        self._services.take_down(self._target)
        await self._end_and_start(what, end, seconds)

    async def _end_and_start(self, what: str, end: Callable[[], None], seconds: float) -> None:
        """End a service that is noted as down, and start it again after a time."""
        self._record(what)
        await asyncio.to_thread(end)
        if self._target is FaultTarget.JOB:
            await note_receipts_ahead(self._services, self._ledger, self._display)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._service.start)
        self._services.down.discard(self._target)
        self._record("runs again")

    async def _reach_batch(self) -> None:
        """Wait, for a limited time, until the job is in the middle of a batch, where a kill can do harm."""
        loop, job = asyncio.get_running_loop(), self._services.job
        deadline = loop.time() + BATCH_SECONDS_MAX
        while loop.time() < deadline:
            if job.in_a_batch:
                await asyncio.sleep(INTO_BATCH_SECONDS)
                if job.in_a_batch:
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _restore(self) -> None:
        """Replace the card by its copy once Kafka has all of its events, and have sensors report to the copy.

        They pause before: while they report, the card may always hold an event that is nowhere else.
        """
        async with self._reports.paused():
            await self._delivered()
            await self._end_and_start(RESTORED, self._gateway.restore, 0.0)
        await asyncio.sleep(RESTORED_SECONDS)

    async def _delivered(self) -> None:
        """Stop the agent at a moment when Kafka has all events of the card: the replaced card would take the others."""
        gateway = self._gateway
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EMPTY_SECONDS_MAX
        while True:
            while (await asyncio.to_thread(gateway.status)).new and loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                if FaultTarget.KAFKA in self._services.down:
                    deadline = loop.time() + EMPTY_SECONDS_MAX  # nothing leaves the card meanwhile
            self._services.take_down(self._target)
            await asyncio.to_thread(gateway.stop)
            if (await asyncio.to_thread(gateway.status)).new == 0:
                return
            if loop.time() > deadline:
                raise RunError(f"{self._target}: its card was not empty within {EMPTY_SECONDS_MAX:g} s")
            await asyncio.to_thread(gateway.start)
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _service(self) -> ProcessService:
        service = self._services.by_name.get(self._target)
        return self._gateway if service is None else service

    @property
    def _gateway(self) -> Gateway:
        gateway = self._services.agents.get(self._target)
        if gateway is None:
            raise RunError(f"the scenario has a fault of {self._target}, and there is no such gateway")
        return gateway

    def _record(self, what: str) -> None:
        self._ledger.happened(self._target, what)
        self._display.fact(f"{self._target}: {what}")
