"""Turns: a lane sends nothing new while a lane of higher priority has events that it may send."""

from __future__ import annotations

from typing import Final

from agent.clock import Clock

WAITED_FOR_MS: Final = 10_000
"""How long others wait for a lane that has asked for its turn and does not ask again, such as one that cannot send."""


class Turns:
    """The lanes of one gateway; each is used by the thread of its forwarder."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: dict[int, int] = {}
        """When a lane of a priority has asked for its turn last, by the monotonic clock; none that has no new event."""

    def of(self, priority: int) -> Turn:
        """Return the turn of a lane."""
        return Turn(self, priority)

    def ask(self, priority: int, *, has_events: bool) -> None:
        """Note whether a lane has events to send now."""
        if has_events:
            self._asked[priority] = self._clock.monotonic_ms()
        else:
            self._asked.pop(priority, None)

    def has_come(self, priority: int) -> bool:
        """Whether no lane of higher priority is waited for."""
        now = self._clock.monotonic_ms()
        return not any(other > priority and now - at < WAITED_FOR_MS for other, at in tuple(self._asked.items()))


class Turn:
    """The turn of one lane."""

    def __init__(self, turns: Turns, priority: int) -> None:
        self._turns = turns
        self._priority = priority

    def ask(self, *, has_events: bool) -> bool:
        """Note whether the lane has events to send now; return whether it may send them."""
        self._turns.ask(self._priority, has_events=has_events)
        return self._turns.has_come(self._priority)
