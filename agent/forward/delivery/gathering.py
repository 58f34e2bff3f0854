"""Gathers new events: they are sent together, once the oldest of them has waited for a time, or there are many."""

from __future__ import annotations

from typing import Final

from agent.clock import Clock
from agent.store.port import Outbox

EVENTS_MAX: Final = 1_000
"""How many events wait at most: those of one batch."""
STOP_MS_MAX: Final = 5_000
"""How long what was gathered may take to be sent when the agent stops."""


class Gathering:
    """Decides in one session whether the events above a position are sent now.

    What was there at its start is sent at once, such as the backlog of an outage, and what was returned.
    """

    def __init__(self, outbox: Outbox, clock: Clock, seconds: float) -> None:
        self._outbox = outbox
        self._clock = clock
        self._ms = int(seconds * 1000)
        self._due_to = outbox.end()
        """The highest position of those that are sent now."""
        self._since: int | None = None
        """Since when the others have waited, None where there are none; not later than the oldest of them."""
        self._stop_at: int | None = None

    def is_due(self, after: int) -> bool:
        """Whether there are new events above a position, and they are sent now."""
        if not self._outbox.wait(after, 0):
            self._since = None
            return False
        now, end = self._clock.monotonic_ms(), self._outbox.end()
        if self._since is None:
            self._since = now
        if after >= self._due_to and (now - self._since >= self._ms or end - after >= EVENTS_MAX):
            self._due_to, self._since = end, now
        return after < self._due_to

    def seconds_left(self) -> float:
        """Return how long the others still wait; 0 where there are none."""
        return 0.0 if self._since is None else max(0, self._since + self._ms - self._clock.monotonic_ms()) / 1000

    def has_left(self) -> bool:
        """Whether events still wait; called where the agent stops, and for STOP_MS_MAX after that they are sent now."""
        now = self._clock.monotonic_ms()
        if self._stop_at is None:
            self._due_to, self._stop_at = self._outbox.end(), now + STOP_MS_MAX
        return self._since is not None and now < self._stop_at
