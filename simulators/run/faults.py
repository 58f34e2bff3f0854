"""Play a scenario's faults on the services of this machine, each at its moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from simulators.display import Display
from simulators.errors import RunError
from simulators.evidence import receipts
from simulators.ledger import Ledger
from simulators.oracle.evidence_database import AHEAD, RESTORED
from simulators.run.gateway import Gateway
from simulators.run.services import Services
from simulators.scenario import Fault, FaultKind, FaultTarget
from simulators.services.process import Process

EMPTY_SECONDS_MAX = 60.0
BATCH_SECONDS_MAX = 60.0
INTO_BATCH_SECONDS = 1.0
POLL_SECONDS = 0.2


async def play(faults: Sequence[Fault], services: Services, ledger: Ledger, display: Display) -> None:
    """Play all faults; return when every part runs again."""
    async with asyncio.TaskGroup() as tasks:
        for part in FaultTarget:
            of_part = sorted((fault for fault in faults if fault.part is part), key=lambda fault: fault.at)
            tasks.create_task(_Player(part, services, ledger, display).play(of_part), name=f"faults of {part}")


async def note_receipts_ahead(services: Services, ledger: Ledger, display: Display) -> None:
    """Look whether Kafka has receipts for what the table has not, and note their number in the ledger."""
    if FaultTarget.KAFKA in services.down:
        return  # nobody can be asked
    if ahead := await asyncio.to_thread(receipts.ahead, services.broker.bootstrap_servers, services.job.table):
        ledger.happened(FaultTarget.JOB, f"{AHEAD}{ahead}")
        display.fact(f"{FaultTarget.JOB}: {AHEAD}{ahead}")


class _Player:
    """The faults of one part, one after the other."""

    def __init__(self, part: FaultTarget, services: Services, ledger: Ledger, display: Display) -> None:
        self._part = part
        self._services = services
        self._ledger = ledger
        self._display = display

    async def play(self, faults: Sequence[Fault]) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for fault in faults:
            await asyncio.sleep(max(0.0, begin + fault.at - loop.time()))
            await self._happen(fault)

    async def _happen(self, fault: Fault) -> None:
        match fault.what:
            case FaultKind.KILL:
                if self._part is FaultTarget.JOB:
                    await self._reach_batch()
                await self._away("killed", self._kill, fault.seconds)
            case FaultKind.RESTART | FaultKind.DOWN:
                await self._away("stopped", self._stop, fault.seconds)
            case FaultKind.FREEZE:
                await asyncio.to_thread(self._process.pause)
                self._say("frozen")
                await asyncio.sleep(fault.seconds)
                await asyncio.to_thread(self._process.resume)
                self._say("goes on")
            case FaultKind.DISK_FULL:
                await self._fill_disk(fault.seconds)
            case FaultKind.CLOCK:
                self._gateway.set_clock(fault.by_seconds)
                self._say(f"clock {fault.by_seconds:+.0f} s")
            case FaultKind.BACKUP:
                await self._away("copied", lambda: self._at_rest(self._gateway.back_up), 0.0)
            case FaultKind.RESTORE:
                await self._delivered()
                await self._away(RESTORED, lambda: self._at_rest(self._gateway.restore), 0.0)

    async def _fill_disk(self, seconds: float) -> None:
        """Fill the disk for a while; an agent that ends by that is started again, as its supervisor would."""
        self._services.take_down(self._part)
        self._gateway.limit_disk(full=True)
        self._say("disk full")
        await asyncio.sleep(seconds)
        if self._process.alive:
            self._gateway.limit_disk(full=False)
            self._say("disk has room")
        else:
            self._say(f"had ended with status {self._process.exit_status}; disk has room, started again")
            await asyncio.to_thread(self._start)
        self._services.down.discard(self._part)

    async def _away(self, what: str, end: Callable[[], Awaitable[None]], seconds: float) -> None:
        self._services.take_down(self._part)
        self._say(what)
        await end()
        if self._part is FaultTarget.JOB:
            await note_receipts_ahead(self._services, self._ledger, self._display)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._start)
        self._services.down.discard(self._part)
        self._say("runs again")

    async def _reach_batch(self) -> None:
        """Wait until the job is in the middle of a batch, where a kill can do harm; not for ever, where none comes."""
        loop, job = asyncio.get_running_loop(), self._services.job
        deadline = loop.time() + BATCH_SECONDS_MAX
        while loop.time() < deadline:
            if job.in_a_batch:
                await asyncio.sleep(INTO_BATCH_SECONDS)
                if job.in_a_batch:
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def _kill(self) -> None:
        await asyncio.to_thread(self._process.kill)

    async def _stop(self) -> None:
        await asyncio.to_thread(self._process.terminate)

    async def _at_rest(self, act: Callable[[], None]) -> None:
        await asyncio.to_thread(self._process.terminate)
        await asyncio.to_thread(act)

    async def _delivered(self) -> None:
        """Wait for a moment at which the card holds nothing that Kafka has not: a card takes that with it."""
        gateway = self._gateway
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EMPTY_SECONDS_MAX
        while True:
            while (await asyncio.to_thread(gateway.status)).new and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
            self._services.take_down(self._part)
            await asyncio.to_thread(gateway.process.terminate)
            if (await asyncio.to_thread(gateway.status)).new == 0:
                return
            if loop.time() > deadline:
                raise RunError(f"{self._part}: its card was not empty within {EMPTY_SECONDS_MAX:g} s")
            await asyncio.to_thread(gateway.start)
            await asyncio.sleep(POLL_SECONDS)

    @property
    def _process(self) -> Process:
        if self._part is FaultTarget.KAFKA:
            return self._services.broker.process
        return self._services.job.process if self._part is FaultTarget.JOB else self._gateway.process

    @property
    def _gateway(self) -> Gateway:
        gateway = self._services.agents.get(self._part)
        if gateway is None:
            raise RunError(f"the scenario has a fault of {self._part}, and there is no such gateway")
        return gateway

    def _start(self) -> None:
        if self._part is FaultTarget.KAFKA:
            self._services.broker.start()
        elif self._part is FaultTarget.JOB:
            self._services.job.start()
        else:
            self._gateway.start()

    def _say(self, what: str) -> None:
        self._ledger.happened(self._part, what)
        self._display.fact(f"{self._part}: {what}")
