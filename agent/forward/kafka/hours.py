"""The hours of the day in which the gateway uses the uplink to Kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from agent.clock import Clock
from agent.config.readers import Span
from contract.record import ClockTrust

CHECK_SECONDS: Final = 1.0
"""How often it is checked whether the hours have begun."""
_DAY_MINUTES: Final = 24 * 60


class Hours:
    """Spans of local time; without any, and while the clock is untrusted, all hours count."""

    def __init__(self, spans: Sequence[Span], clock: Clock) -> None:
        self._spans = spans
        self._clock = clock

    def include_now(self) -> bool:
        """Whether the uplink may be used now."""
        return self.next_begin() is None

    def next_begin(self) -> str | None:
        """Return the local time from which the uplink may be used, such as `22:00`; None where it may now."""
        if not self._spans or self._clock.trust() is ClockTrust.UNTRUSTED:
            return None
        local = time.localtime(self._clock.wall_ms() / 1000)
        minute = local.tm_hour * 60 + local.tm_min
        if any((minute - first) % _DAY_MINUTES < (last - first) % _DAY_MINUTES for first, last in self._spans):
            return None
        begin = min((first for first, _ in self._spans), key=lambda first: (first - minute) % _DAY_MINUTES)
        return f"{begin // 60:02}:{begin % 60:02}"
