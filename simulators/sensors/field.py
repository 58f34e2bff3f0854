"""The state that all sensors of a run share: the ledger, the clock, the targets, and the end of the run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random

from simulators.ledger import Ledger
from simulators.sensors.endpoint import Timing

POLL_SECONDS = 1.0
"""How often an idle sensor checks whether the run is over."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The address that sensors send to, for each protocol; None where the run has no such sensors."""

    coap: tuple[str, int] | None = None
    http: tuple[str, int] | None = None
    http_token: str | None = None
    mqtt: tuple[str, int] | None = None
    register_peer: Callable[[int, object], None] = lambda _port, _name: None
    """Called with each sensor's port and name, so that the link can identify it."""


@dataclass(slots=True)
class Field:
    """A run from the sensors' side."""

    ledger: Ledger
    seed: int
    targets: Targets
    timing: Timing
    is_over: Callable[[float], bool]
    """Whether a moment, in seconds since the start, is after the last report."""
    clock: Callable[[], int]
    run: int = 0
    """The run's number, which makes its device addresses unique (`payloads.address`)."""
    may_report: asyncio.Event | None = None
    """Set while sensors may begin a report; None where they always may."""
    begin: float = 0.0
    begin_ms: int = 0

    def start(self) -> None:
        """Start the clock of the run."""
        self.begin = asyncio.get_running_loop().time()
        self.begin_ms = self.clock()

    def random(self, of: str) -> Random:
        """Return a generator of its own for a part of the field, independent of all others."""
        return Random(f"{self.seed} {of}")

    def time_of(self, moment: float, offset_seconds: float) -> int:
        """Return a sensor's clock at a moment of the run, in milliseconds since 1970 UTC."""
        return self.begin_ms + round((moment + offset_seconds) * 1000)

    async def moments(self, random: Random, every_seconds: float) -> AsyncIterator[float]:
        """Yield the moments of a sensor's reports, each when it is due.

        Reports that fell due during an outage follow at once: the schedule keeps moments, not intervals.
        """
        loop = asyncio.get_running_loop()
        moment = random.uniform(0.0, every_seconds)
        while not self.is_over(moment):
            if (seconds := self.begin + moment - loop.time()) > 0:
                await asyncio.sleep(min(seconds, POLL_SECONDS))
                continue
            if self.may_report is not None:
                await self.may_report.wait()
            yield moment
            moment += random.expovariate(1.0 / every_seconds)
