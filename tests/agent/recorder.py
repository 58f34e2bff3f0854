"""A replacement for the pipeline: records deliveries, and answers at once or on command."""

import asyncio
from collections.abc import Callable

from agent.delivery import Answer, Delivery, Respond, Status

DURABLE = Answer(Status.DURABLE, accepted=1)


class Recorder:
    """A `Receive`, with some work for each delivery. With `answer` None, it waits for `respond`."""

    def __init__(self, answer: Answer | None = DURABLE, work: Callable[[], None] = lambda: None) -> None:
        self.answer = answer
        self.deliveries: list[Delivery] = []
        self.open: list[Respond] = []
        self._work = work
        self._wake: Callable[[], None] | None = None

    def __call__(self, delivery: Delivery, respond: Respond) -> None:
        self._work()
        self.deliveries.append(delivery)
        if self.answer is None:
            self.open.append(respond)
        if self._wake is not None:
            self._wake()
        if self.answer is not None:
            respond(self.answer)

    def respond(self, answer: Answer = DURABLE) -> None:
        """Answer the oldest open delivery."""
        self.open.pop(0)(answer)

    async def received(self, count: int) -> None:
        arrived = asyncio.Event()
        self._wake = arrived.set
        async with asyncio.timeout(60):
            while len(self.deliveries) < count:
                arrived.clear()
                await arrived.wait()
