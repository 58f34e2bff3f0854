"""Many sensors in one process, all from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from simulators.ledger import Ledger
from simulators.sensor import Sensor, Timing
from simulators.voice import Voice, nature


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """How many sensors say how much, how fast, with which transmission parameters."""

    sensors: int
    events_min: int
    events_per_second: float
    timing: Timing


LOOK_SECONDS = 1.0
"""How often a silent sensor looks whether there were enough events."""


class Fleet:
    """Let all sensors report at random moments until there were enough events and nobody wants more."""

    def __init__(self, plan: FleetPlan, ledger: Ledger, seed: int, clock: Callable[[], int]) -> None:
        self._plan = plan
        self._ledger = ledger
        self._seed = seed
        self._clock = clock

    async def run(self, target: tuple[str, int], wanted: Callable[[], bool]) -> None:
        """Play the sensors; return when every event told is acked, refused or given up."""

        def enough() -> bool:
            return self._ledger.counts.events >= self._plan.events_min and not wanted()

        async with asyncio.TaskGroup() as tasks:
            for index in range(self._plan.sensors):
                tasks.create_task(self._live(index, target, enough), name=f"sensor {index}")

    async def _live(self, index: int, target: tuple[str, int], enough: Callable[[], bool]) -> None:
        random = Random(f"{self._seed} sensor {index}")
        sensor = Sensor(Voice(nature(index), random), self._plan.timing, self._ledger, random)
        loop = asyncio.get_running_loop()
        interval_seconds = self._plan.sensors / self._plan.events_per_second
        # What could not be said during an outage is said after it: moments are kept, not intervals.
        moment = loop.time() + random.uniform(0.0, interval_seconds)
        await sensor.open(target)
        try:
            while not enough():
                if (seconds := moment - loop.time()) > 0:
                    await asyncio.sleep(min(seconds, LOOK_SECONDS))
                    continue
                await sensor.report(sensor.voice.next_event(self._clock()))
                moment += random.expovariate(1.0 / interval_seconds)
        finally:
            sensor.close()
