"""What a lane adds to a forwarder: its turn among the other lanes, and its time to live."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from agent.clock import Clock
from agent.forward.kafka.record import is_own
from agent.store.port import Outbox, StoredEvent

WAITED_FOR_MS: Final = 10_000
"""How long others wait for a lane that has asked for its turn and does not ask again, such as one that cannot send."""


class Turns:
    """A lane sends nothing new while a lane of higher priority has events that it may send.

    Each lane is used by the thread of its forwarder.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: dict[Turn, int] = {}
        """When a lane has asked for its turn last, by the monotonic clock; no lane that has no new event."""

    def of(self, priority: int) -> Turn:
        """Return the turn of a lane."""
        return Turn(self, priority)

    def ask(self, turn: Turn, *, has_events: bool) -> None:
        """Note whether a lane has events to send now."""
        if has_events:
            self._asked[turn] = self._clock.monotonic_ms()
        else:
            self._asked.pop(turn, None)

    def has_come(self, turn: Turn) -> bool:
        """Whether no lane of higher priority is waited for."""
        now = self._clock.monotonic_ms()
        asked = tuple(self._asked.items())
        return not any(other.priority > turn.priority and now - at < WAITED_FOR_MS for other, at in asked)


class Turn:
    """The turn of one lane."""

    def __init__(self, turns: Turns, priority: int) -> None:
        self.priority = priority
        self._turns = turns

    def ask(self, *, has_events: bool) -> bool:
        """Note whether the lane has events to send now; return whether it may send them."""
        self._turns.ask(self, has_events=has_events)
        return self._turns.has_come(self)


class Expiry:
    """Gives up expired events of one lane, over all sessions of its forwarder.

    Only what this process has not read for sending before: of anything else it is not known whether Kafka has it.
    """

    def __init__(self, outbox: Outbox, lifetime_seconds: float) -> None:
        self._outbox = outbox
        self._lifetime_seconds = lifetime_seconds
        self._read_to = 0
        """The highest position that was read for sending."""

    def unexpired(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Return the first of consecutive events that are to be sent; none where some of them have been given up.

        The gateway's own events do not expire.
        """
        if not events:
            return events
        wanted = [event for event in events if event.position <= self._read_to] or list(takewhile(is_own, events))
        if wanted:
            events = wanted
        else:
            last = list(takewhile(lambda event: not is_own(event), events))[-1]
            if self._outbox.expire(events[0].position, last.position, self._lifetime_seconds):
                return ()
        self._read_to = max(self._read_to, events[-1].position)
        return events
