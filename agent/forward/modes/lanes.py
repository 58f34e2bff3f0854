"""What a lane adds to a forwarder: its rank among the others, its time to live, and how its events are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from agent.clock import Clock
from agent.forward.kafka.record import is_own
from agent.forward.kafka.uplink import Uplink
from agent.store.port import Outbox, StoredEvent

WAITED_FOR_MS: Final = 10_000
"""How long others wait for a lane that has asked to send and does not ask again, such as one that cannot send."""


class Rank:
    """The rank of one lane, which waits while a lane of higher priority has events to send.

    Each is used by the thread of its lane's forwarder.
    """

    def __init__(self, clock: Clock, priority: int, asked: dict[Rank, int]) -> None:
        """Create the rank; all lanes share `asked`, which is empty at first."""
        self.priority = priority
        self._clock = clock
        self._asked = asked
        """When a lane has asked for its turn last, by the monotonic clock; no lane that has no new event."""

    def ask(self, *, has_events: bool) -> bool:
        """Note whether the lane has events to send now; return whether no lane of higher priority is waited for."""
        now = self._clock.monotonic_ms()
        if has_events:
            self._asked[self] = now
        else:
            self._asked.pop(self, None)
        asked = tuple(self._asked.items())
        return not any(other.priority > self.priority and now - at < WAITED_FOR_MS for other, at in asked)


@dataclass(frozen=True, slots=True)
class ForwardedLane:
    """A lane, and what its forwarder shares with those of the other lanes."""

    name: str = ""
    """Empty for the default lane."""
    rank: Rank | None = None
    """None where there is no other lane."""
    uplink: Uplink | None = None
    """The cap on what all lanes send; None where there is none."""
    time_to_live_seconds: float | None = None
    """None where events are sent whatever their age."""
    gather_seconds: float | None = None
    """How long new events wait at most for others; None where they do not."""


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
        """Return the first of these events to send; none where expired ones have just been given up.

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
        """Whether new events above a position are to be sent now."""
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
        """Whether events still wait while the agent stops; they are sent without delay, for STOP_MS_MAX."""
        now = self._clock.monotonic_ms()
        if self._stop_at is None:
            self._due_to, self._stop_at = self._outbox.end(), now + STOP_MS_MAX
        return self._since is not None and now < self._stop_at
