"""Records that Kafka refuses for their size: found out one by one, set aside so that the rest goes on, tried again.

A limit that is too small is a setting, and can be undone; an event that was given up cannot. So what is refused waits,
still stored and still `new`, while the others go on. From time to time the smallest of what waits is tried: where it is
taken, the limit was raised, and all of them go again. Only what Kafka has refused for `kafka.oversized_after` is given
up. Time in which Kafka was not asked does not count, nor does the wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError

from agent.clock import Clock
from agent.forward.held import HELD_FACT, Held, read_held, write_held
from agent.forward.records import read_front
from agent.store.port import Outbox, StoredEvent

TOO_LARGE_CODES: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
"""Refusals that another try would only repeat."""
REASON: Final = "too large for Kafka"
RETRY_MS: Final = 60_000
"""How often the smallest of what waits is tried again."""
HELD_MAX: Final = 1_000
"""How many events may wait: where so many are too large, it is the limit that is wrong, and the others wait, too."""
HINT: Final = "raise max.message.bytes of the topic, and message.max.bytes in kafka.properties"

_log = logging.getLogger(__name__)


class Oversized:
    """What has to go alone, since one of it was refused, and what waits, since it was refused alone."""

    def __init__(self, outbox: Outbox, clock: Clock, after_ms: int) -> None:
        self._outbox = outbox
        self._clock = clock
        self._after_ms = after_ms
        self._suspects: set[int] = set()
        self._held = read_held(outbox.fact(HELD_FACT))
        self._before: dict[int, Held] = {}
        """What waited until a smaller one was taken: it may be refused again."""
        self._refused_at: int | None = None
        """When Kafka was last seen to refuse the smallest."""
        self._try_at = clock.monotonic()
        self._trying: int | None = None

    @property
    def full(self) -> bool:
        """Whether so many wait that nothing else is to be sent."""
        return len(self._held) >= HELD_MAX

    @property
    def due(self) -> bool:
        """Whether it is time to try what waits again."""
        return bool(self._held) and self._clock.monotonic() >= self._try_at

    def next_try(self) -> Sequence[StoredEvent]:
        """Return the smallest of what waits, to be sent alone, where it is time for that."""
        while self.due:
            position = min(self._held, key=lambda position: self._held[position].size)
            events = self._outbox.read(position - 1, 1, 1)
            if events and events[0].position == position:
                self._try_at = self._clock.monotonic() + RETRY_MS
                self._trying = position
                return events
            del self._held[position]  # it was given up for another reason
        return ()

    def cut(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Return those of consecutive events that may go together, behind what waits; a suspect goes alone."""
        first = next((place for place, event in enumerate(events) if event.position not in self._held), len(events))
        for place in range(first, len(events)):
            position = events[place].position
            if position in self._held or position in self._suspects:
                alone = place == first and position in self._suspects
                return events[first : place + 1 if alone else place]
        return events[first:]

    def goes_alone(self, position: int) -> bool:
        """Whether an event has to be sent alone, so that a refusal tells which it was."""
        return position in self._suspects or position == self._trying

    def suspect(self, first: int, last: int) -> None:
        """Note that one of these was refused."""
        self._suspects.update(range(first, last + 1))

    def taken(self, position: int) -> bool:
        """Note that Kafka took what went alone; True where everything that waited goes again."""
        self._suspects.discard(position)
        if position != self._trying:
            return False
        self._trying = None
        self._held.pop(position, None)
        self._before, self._held = self._held, {}
        self._refused_at = None
        _log.info("oversized=taken position=%d again=%d", position, len(self._before))
        self._write()
        return True

    def refused(self, event: StoredEvent, size: int) -> None:
        """Note that Kafka refused what went alone: it waits, or was refused for long enough and is given up."""
        self._suspects.discard(event.position)
        tried = event.position == self._trying
        if tried:
            self._trying = None
            self._count()
        else:
            held = self._before.pop(
                event.position, Held(size, self._clock.wall(), read_front(event.tail).via == "gateway")
            )
            if not self._held:
                self._try_at = self._clock.monotonic() + RETRY_MS
                _log.warning("oversized=held reason=%r bytes=%d effect=%r hint=%r", REASON, size, _EFFECT, HINT)
            self._held[event.position] = held
            if self.full:
                _log.error("oversized=full count=%d effect='nothing is sent' hint=%r", len(self._held), HINT)
        self._give_up()
        count = len(self._held)
        if event.position in self._held and not tried and count & (count - 1):
            return  # written with the next try: each costs a flush, and what is forgotten only waits anew
        self._write()

    def _count(self) -> None:
        """Count the time since the last refusal for all that waits: what is larger would be refused as well."""
        now = self._clock.monotonic()
        # Not more than two tries' time: Kafka may have been away, and was not asked.
        passed = 0 if self._refused_at is None else min(now - self._refused_at, 2 * RETRY_MS)
        self._refused_at = now
        self._held = {
            position: replace(held, refused_ms=held.refused_ms + passed) for position, held in self._held.items()
        }

    def _give_up(self) -> None:
        """Make gaps of what was refused for long enough."""
        for position, held in list(self._held.items()):
            if held.own or held.refused_ms < self._after_ms:
                continue
            events = self._outbox.read(position - 1, 1, 1)
            if events and events[0].position == position:
                give_up(self._outbox, events[0], held.size)
            del self._held[position]

    def _write(self) -> None:
        self._outbox.set_fact(HELD_FACT, write_held(self._held))


_EFFECT: Final = "it waits and is tried again, for as long as kafka.oversized_after says; the others go on"


def give_up(outbox: Outbox, event: StoredEvent, size: int) -> None:
    """Make a gap of an event whose record is too large."""
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
