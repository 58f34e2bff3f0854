"""What all sensors of a run share: the ledger, the clock, the ways to the gateway, and when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from random import Random

from simulators.ledger import Ledger
from simulators.sensors.endpoint import Timing

LOOK_SECONDS = 1.0
"""How often a silent sensor looks whether the run is over."""


@dataclass(frozen=True, slots=True)
class Source:
    """A Zigbee2MQTT that reports when it is told to."""

    broker: tuple[str, int]
    devices: Mapping[str, str]
    """By the names in its topics."""
    report: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Ways:
    """Where sensors send to, by protocol; None where the run has no such sensors."""

    coap: tuple[str, int] | None = None
    http: tuple[str, int] | None = None
    http_token: str | None = None
    mqtt: tuple[str, int] | None = None
    zigbee2mqtt: Source | None = None
    introduce: Callable[[int, object], None] = lambda _port, _name: None
    """Called with the port of each sensor and its name, for the link."""


@dataclass(slots=True)
class Field:
    """One run, as its sensors see it."""

    ledger: Ledger
    seed: int
    ways: Ways
    timing: Timing
    is_over: Callable[[float], bool]
    """Whether a moment, in seconds since the field began, is after the last report."""
    clock: Callable[[], int]
    run: int = 0
    """Keeps the devices of one run apart from those of another (`voice.address`)."""
    begin: float = 0.0
    begin_ms: int = 0

    def start(self) -> None:
        """Begin now."""
        self.begin = asyncio.get_running_loop().time()
        self.begin_ms = self.clock()

    def random(self, of: str) -> Random:
        """Return the randomness of a part of the field, which no other's delays can shift."""
        return Random(f"{self.seed} {of}")

    def time_of(self, moment: float, offset_seconds: float = 0.0) -> int:
        """Return a sensor's clock at a moment of the plan, in milliseconds since 1970 UTC."""
        return self.begin_ms + round((moment + offset_seconds) * 1000)

    async def moments(self, random: Random, every_seconds: float) -> AsyncIterator[float]:
        """Yield the moments at which a sensor has something to say, each when it has come.

        What could not be said during an outage is said after it: moments are kept, not intervals.
        """
        loop = asyncio.get_running_loop()
        moment = random.uniform(0.0, every_seconds)
        while not self.is_over(moment):
            if (seconds := self.begin + moment - loop.time()) > 0:
                await asyncio.sleep(min(seconds, LOOK_SECONDS))
                continue
            yield moment
            moment += random.expovariate(1.0 / every_seconds)
