"""Detects that the wall clock was set back, which lengthens every wait of Kafka's client library by as much.

librdkafka waits until times of the wall clock (`cnd_timedwait`): if the clock is set back by an hour during a wait,
the wait lasts an hour longer, unless it is signalled. Its own threads wait in the same way, before the next attempt to
connect and for expiries. Only a new client helps, whose waits begin after the step.
"""

from __future__ import annotations

from typing import Final

from agent.clock import Clock
from agent.forward.errors import ClockSetBackError

STEP_MS_MAX: Final = 1_000
"""A smaller step lengthens a wait by a negligible time."""


class WallSteps:
    """Compares the wall clock with the monotonic one, from one check to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._difference()

    def check(self) -> None:
        """Raise ClockSetBackError where the wall clock was set back since the last check."""
        before, self._ahead = self._ahead, self._difference()
        if before - self._ahead > STEP_MS_MAX:
            raise ClockSetBackError(f"the wall clock was set back by {(before - self._ahead) / 1000:.0f} s")

    def _difference(self) -> int:
        return self._clock.wall_ms() - self._clock.monotonic_ms()
