"""A sensor that stores and forwards: it sends packs from the head of its queue, cut differently after a lost ACK."""

import asyncio
from collections import deque
from random import Random

from contract.event import Event
from simulators.payloads import PayloadFormat, PayloadGenerator
from simulators.scenario import Bug, FleetPlan
from simulators.sensors.field import Field
from simulators.sensors.reporter import CoapSensor

NAN_EVERY = 5


class StoreAndForwardSensor(CoapSensor):
    """A device with a queue, which events leave only with an ACK."""

    def __init__(self, field: Field, generator: PayloadGenerator, plan: FleetPlan, random: Random) -> None:
        super().__init__(field, generator, plan, random)
        self._queue: deque[tuple[int, Event]] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._requests = 0

    async def run(self, schedule: Random) -> None:
        """Measure and send concurrently until the run is over and the queue is empty."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._measure(schedule))
            tasks.create_task(self._send_all())

    async def _measure(self, schedule: Random) -> None:
        plan = self._plan
        stored = int(plan.backlog_seconds / plan.every_seconds)
        for number in range(stored):
            self._store((number - stored) * plan.every_seconds)
        async for moment in self._field.moments(schedule, plan.every_seconds):
            self._store(moment)
        self._ended = True
        self._arrived.set()

    def _store(self, moment: float) -> None:
        event = self.next_event(moment)
        self._queue.append((self._field.ledger.reported(event), event))
        self._arrived.set()

    async def _send_all(self) -> None:
        while self._queue or not self._ended:
            if self._queue:
                await self._send_pack()
            else:
                self._arrived.clear()
                await self._arrived.wait()

    async def _send_pack(self) -> None:
        """Send the head of the queue in one exchange; without an ACK it stays, and the next pack is divided again."""
        size = self._random.randint(1, min(self._plan.pack_max, len(self._queue)))
        marks = [mark for mark, _ in list(self._queue)[:size]]
        events = [event for _, event in list(self._queue)[:size]]
        ledger = self._field.ledger
        self._requests += 1
        request = self.generator.request(*events, nan=self._has_nan())
        answer = await self.endpoint.exchange(
            self.endpoint.prepare(request), lambda again: ledger.sent(*marks, again=again)
        )
        if await self.settle(answer, *marks):
            for _ in marks:
                self._queue.popleft()

    def _has_nan(self) -> bool:
        # JSON has no NaN, and SenML would refuse one record of the same instant with it.
        wanted = Bug.NAN_IN_PACK in self._plan.bugs and self.generator.profile.form is PayloadFormat.CBOR
        return wanted and self._requests % NAN_EVERY == 0
