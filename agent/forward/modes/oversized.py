"""Events whose records Kafka refuses for their size: identified one by one, held while others are sent, and retried.

A held event is still stored and still `new`; decision 37 states when it is retried, and when it is given up.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError

from agent.clock import Clock
from agent.forward.facts import OversizedEvent, read_oversized, write_oversized
from agent.forward.kafka.record import is_own
from agent.store.facts import OVERSIZED
from agent.store.port import Outbox, StoredEvent

TOO_LARGE_CODES: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
"""Refusals that a retry would only repeat."""
REASON: Final = "too large for Kafka"
RETRY_MS: Final = 60_000
HELD_MAX: Final = 1_000
"""How many events may be held: where so many are too large, the limit is wrong, and nothing else is sent."""
HINT: Final = "raise max.message.bytes of the topic, and message.max.bytes in kafka.properties"

_log = logging.getLogger(__name__)


class Oversized:
    """The suspects, sent alone since one of them was refused, and the held events, which were refused alone."""

    def __init__(self, outbox: Outbox, clock: Clock, after_ms: int) -> None:
        self._outbox = outbox
        self._clock = clock
        self._after_ms = after_ms
        self._suspects: set[int] = set()
        self._held = read_oversized(outbox.fact(OVERSIZED))
        self._refused_at: int | None = None
        self._try_at = clock.monotonic_ms()
        self._trying: int | None = None

    @property
    def full(self) -> bool:
        """Whether so many events are held that nothing else is sent."""
        return len(self._held) >= HELD_MAX

    @property
    def due(self) -> bool:
        return bool(self._held) and self._clock.monotonic_ms() >= self._try_at

    def next_try(self, check_broker: Callable[[], object]) -> Sequence[StoredEvent]:
        """Return a held event to send alone; nothing where no retry is due.

        `check_broker` raises where no broker answers: the client refuses by its own limit even without a broker, and
        such a refusal must not count towards the time for which Kafka has refused.
        """
        if not self.due:
            return ()
        check_broker()
        tried: Sequence[StoredEvent] = ()
        missing = set()
        for position in sorted(self._held, key=self._retry_order):
            events = self._outbox.read(position - 1, 1, 1)
            if events and events[0].position == position:
                tried = events
                break
            missing.add(position)  # forwarded just before a kill, or given up for another reason
        if missing:
            self._keep({position: held for position, held in self._held.items() if position not in missing})
        if tried:
            self._try_at = self._clock.monotonic_ms() + RETRY_MS
            self._trying = tried[0].position
        return tried

    def cut(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Return the first events to be sent together: none that is held, and a suspect alone."""
        first = next((place for place, event in enumerate(events) if event.position not in self._held), len(events))
        for place in range(first, len(events)):
            position = events[place].position
            if position in self._held or position in self._suspects:
                alone = place == first and position in self._suspects
                return events[first : place + 1 if alone else place]
        return events[first:]

    def goes_alone(self, position: int) -> bool:
        """Whether an event has to be sent alone, so that a refusal identifies it."""
        return position in self._suspects or position == self._trying

    def suspect(self, first: int, last: int) -> None:
        self._suspects.update(range(first, last + 1))

    def accepted(self, position: int) -> bool:
        """Note that Kafka accepted an event sent alone; return whether all held events are to be sent again."""
        self._suspects.discard(position)
        if position != self._trying:
            return False
        self._trying, self._refused_at = None, None
        again = len(self._held) - 1
        self._keep({})
        _log.info("oversized=accepted position=%d again=%d", position, again)
        return True

    def refused(self, event: StoredEvent, size: int) -> None:
        """Note that Kafka refused an event sent alone: it is held, or was refused for long enough and is given up."""
        self._suspects.discard(event.position)
        if event.position == self._trying:
            self._trying = None
            self._count(event)
        else:
            self._hold(event, size)

    def forget(self) -> None:
        """Release the held events: they are sent again."""
        if self._held:
            self._keep({})

    def _retry_order(self, position: int) -> tuple[bool, int]:
        """Return the sort key of retries: first an event whose next refusal is final, then by size."""
        held = self._held[position]
        return not self._is_over(held), held.size

    def _is_over(self, held: OversizedEvent) -> bool:
        """Whether an event was refused for as long as is allowed."""
        return not held.own and held.refused_ms >= self._after_ms

    def _hold(self, event: StoredEvent, size: int) -> None:
        """Hold an event that was refused for the first time."""
        if not self._held:
            self._try_at = self._clock.monotonic_ms() + RETRY_MS
            _log.warning("oversized=held reason=%r bytes=%d effect=%r hint=%r", REASON, size, _EFFECT, HINT)
        self._held[event.position] = OversizedEvent(size, self._clock.wall_ms(), is_own(event))
        count = len(self._held)
        if self.full:
            _log.error("oversized=full count=%d effect='nothing is sent' hint=%r", count, HINT)
        if not count & (count - 1):  # else with the next retry: each costs a flush, and a lost entry is only held again
            self._keep(self._held)

    def _count(self, tried: StoredEvent) -> None:
        """Add the time since the last refusal to all held events, and give up the retried one where its time is over.

        Each refusal counts for one interval at most: Kafka may have been unreachable meanwhile.
        """
        now = self._clock.monotonic_ms()
        passed = 0 if self._refused_at is None else min(now - self._refused_at, RETRY_MS)
        self._refused_at = now
        counted = {
            position: replace(held, refused_ms=held.refused_ms + passed) for position, held in self._held.items()
        }
        if self._is_over(counted[tried.position]):
            give_up(self._outbox, tried, counted.pop(tried.position).size)
        self._keep(counted)

    def _keep(self, held: dict[int, OversizedEvent]) -> None:
        """Write the fact, then use it; where the disk refuses, the earlier state remains."""
        self._outbox.set_fact(OVERSIZED, write_oversized(held))
        self._held = held


_EFFECT: Final = "it is kept and sent again, for kafka.oversized_after at most; other events are sent"


def give_up(outbox: Outbox, event: StoredEvent, size: int) -> None:
    """Turn an event whose record is too large into a gap."""
    outbox.give_up(event.position, REASON)
    _log.error(
        "event=given-up reason=%r fingerprint=%s epoch=%s sequence=%d bytes=%d hint=%r",
        REASON,
        event.fingerprint.hex(),
        event.label.epoch,
        event.label.sequence,
        size,
        HINT,
    )
