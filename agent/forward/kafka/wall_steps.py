"""Whether the wall clock was set back, since Kafka's client library then waits for as long as it was.

librdkafka waits for moments of the wall clock (`cnd_timedwait`): a wait that has begun when the clock is set back by
an hour lasts an hour longer, unless something ends it. Its own threads wait so, too: for the next attempt to connect,
or to find what has expired. Only another client helps, whose waits begin after the step.
"""

from __future__ import annotations

from typing import Final

from agent.clock import Clock
from agent.forward.errors import ClockSetBackError

STEP_MS_MAX: Final = 1_000
"""A smaller step lengthens a wait by less than anybody notices."""


class WallSteps:
    """Compares the wall clock with the monotonic one, from one look to the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._difference()

    def check(self) -> None:
        """Raise ClockSetBackError where the wall clock was set back since the last look."""
        before, self._ahead = self._ahead, self._difference()
        if before - self._ahead > STEP_MS_MAX:
            raise ClockSetBackError(f"the wall clock was set back by {(before - self._ahead) / 1000:.0f} s")

    def _difference(self) -> int:
        return self._clock.wall_ms() - self._clock.monotonic_ms()
