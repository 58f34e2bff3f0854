"""The total time that the service has run on the store: a clock that cannot be set."""

from __future__ import annotations

from agent.clock import Clock


class ServiceClock:
    """Continues from the service time of the last commit; it does not advance while no agent runs."""

    def __init__(self, clock: Clock, before_ms: int) -> None:
        self._clock = clock
        self._offset_ms = before_ms - clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the service time in milliseconds."""
        return self._offset_ms + self._clock.monotonic_ms()
