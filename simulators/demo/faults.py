"""The faults of the demo: at random moments that follow from the seed, always in the middle of work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from contract.timestamp import rfc3339
from simulators.demo.summary import BrokerOutage, Kill
from simulators.display import Display
from simulators.errors import RunError
from simulators.ledger import Ledger
from simulators.run.faults import note_receipts_ahead
from simulators.run.services import Services

WORK_SECONDS_MAX = 600.0
"""How long a fault waits for work in progress: a job that ended by itself starts meanwhile, on a busy machine."""
POLL_SECONDS = 0.02

AGENT_RUNS_SECONDS = (5.0, 20.0)
AGENT_DOWN_SECONDS = (0.2, 2.0)
JOB_RUNS_SECONDS = (0.0, 3.0)
"""Counted from its first commit."""
INTO_BATCH_SECONDS = (0.0, 2.0)
JOB_DOWN_SECONDS = (0.0, 1.0)
BROKER_RUNS_SECONDS = (5.0, 30.0)
BROKER_DOWN_SECONDS = (3.0, 6.0)


class DemoFaults:
    """Kills and stops the services while the sensors report."""

    def __init__(
        self, services: Services, ledger: Ledger, seed: int, clock: Callable[[], int], display: Display
    ) -> None:
        self.kills: list[Kill] = []
        self.outages: list[BrokerOutage] = []
        self.over = False
        self._services = services
        self._ledger = ledger
        self._seed = seed
        self._clock = clock
        self._display = display

    async def play(self, kills: int) -> None:
        """Inject all faults; return when every service runs again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kill_agent(kills), name="faults of the agent")
            tasks.create_task(self._kill_job(kills), name="faults of the job")
            tasks.create_task(self._stop_broker(), name="faults of the broker")
        self.over = True

    async def _kill_agent(self, kills: int) -> None:
        random = Random(f"{self._seed} agent")
        gateway = self._services.gateways[0]
        for _ in range(kills):
            await asyncio.sleep(random.uniform(*AGENT_RUNS_SECONDS))
            await self._wait(lambda: self._ledger.counts.in_flight > 0, "a request in flight")
            self._services.take_down("agent")
            unacked, moment, stage = self._ledger.counts.in_flight, self._clock(), self._services.job.stage()
            await asyncio.to_thread(gateway.kill)
            await self._record("agent", moment, unacked, stage)
            await asyncio.sleep(random.uniform(*AGENT_DOWN_SECONDS))
            await asyncio.to_thread(gateway.start)
            self._services.down.discard("agent")

    async def _kill_job(self, kills: int) -> None:
        random = Random(f"{self._seed} job")
        job = self._services.job
        for _ in range(kills):
            await self._wait(lambda: self._job_runs() and job.has_committed, "a commit of the job")
            await asyncio.sleep(random.uniform(*JOB_RUNS_SECONDS))
            await self._reach_batch(random)
            self._services.take_down("job")
            unacked, moment = self._ledger.counts.in_flight, self._clock()
            await asyncio.to_thread(job.kill)
            # Its log has the actual stage, a moment later than the check.
            await self._record("job", moment, unacked, job.stage())
            await note_receipts_ahead(self._services, self._ledger, self._display)
            await asyncio.sleep(random.uniform(*JOB_DOWN_SECONDS))
            await asyncio.to_thread(job.start)
            self._services.down.discard("job")

    async def _reach_batch(self, random: Random) -> None:
        """Wait for a random moment within a batch."""
        job = self._services.job
        while True:
            await self._wait(lambda: self._job_runs() and job.in_a_batch, "a batch of the job")
            await asyncio.sleep(random.uniform(*INTO_BATCH_SECONDS))
            if self._job_runs() and job.in_a_batch:
                return

    def _job_runs(self) -> bool:
        """Whether the job runs, as far as its supervisor knows: its log is that of its latest start."""
        return "job" not in self._services.down

    async def _stop_broker(self) -> None:
        random = Random(f"{self._seed} broker")
        broker = self._services.broker
        await asyncio.sleep(random.uniform(*BROKER_RUNS_SECONDS))
        self._services.take_down("kafka")
        begin = self._clock()
        self._display.fact("broker stopped")
        await asyncio.to_thread(broker.stop)
        await asyncio.sleep(random.uniform(*BROKER_DOWN_SECONDS))
        await asyncio.to_thread(broker.start)
        self._services.down.discard("kafka")
        end = self._clock()
        self.outages.append(BrokerOutage(rfc3339(begin), rfc3339(end)))
        self._display.fact(f"broker started again, after {(end - begin) / 1000:.1f} s")

    async def _record(self, process: str, moment: int, unacked: int, stage: str) -> None:
        outbox = (await asyncio.to_thread(self._services.gateways[0].status)).outbox
        self.kills.append(Kill(process, rfc3339(moment), unacked, outbox, stage))
        self._display.fact(f"{process} killed: {unacked} requests unacked, {outbox} events in the outbox, {stage}")

    async def _wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(WORK_SECONDS_MAX):
                while not condition():  # noqa: ASYNC110 (logs and counters send no signal)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise RunError(f"not within {WORK_SECONDS_MAX:g} s: {what}") from error
