"""One producer's life: from the lowest new event on, until something fails or the agent stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from agent.clock import Clock
from agent.forward.client import LastError, code_of, describe
from agent.forward.confirmation import Confirmation
from agent.forward.error import SessionError, UnreachableError
from agent.forward.link import Link
from agent.forward.mode import Mode
from agent.forward.records import encode
from agent.forward.topic import TopicWatch
from agent.forward.window import FLIGHT_BYTES_MAX, FLIGHT_EVENTS_MAX, Flight, Window
from agent.store.port import Outbox, StoredEvent

START: Final = 0
"""Below every position: the outbox counts from 1."""
IDLE_SECONDS_MAX: Final = 0.5
"""How long the session waits for an event; a stop is noticed after this at the latest."""
POLL_SECONDS_MAX: Final = 0.02
"""How long it waits for a delivery report or for the topic's confirmation while there is something to wait for."""
STOP_MS_MAX: Final = 5_000
"""How long what is in flight may take to be reported and marked when the agent stops."""
PURGE_POLLS_MAX: Final = 10
"""Rounds of POLL_SECONDS_MAX in which a purged producer gives back what it holds."""

_TOO_LARGE: Final = (
    "event=too-large fingerprint=%s epoch=%s sequence=%d bytes=%d "
    "hint='raise message.max.bytes in kafka.properties and max.message.bytes of the topic'"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Way:
    """What all sessions of a forwarder have in common."""

    topic: str
    gateway: str
    outbox: Outbox
    mode: Mode
    watch: TopicWatch
    link: Link
    clock: Clock
    oversized: set[int]
    """Positions of the events that a producer has refused as too large: they stay new, and are said once."""


class Session:
    """Sends what is new in order, and marks it in order."""

    def __init__(self, way: Way, producer: Producer, errors: LastError, topic_id: str) -> None:
        self._way = way
        self._producer = producer
        self._errors = errors
        self._window = Window(way.mode.flights_max)
        self._cursor = START
        self._rewind = False
        self._confirmation = Confirmation(way.watch, topic_id, way.clock)
        self.marked = 0
        """Batches that this session has brought home."""

    def run(self, stop: threading.Event) -> None:
        """Send until the agent stops; raise SessionError where this producer is of no more use."""
        while not stop.is_set():
            self._fill(stop)
            self._wait()
            self._advance()
        self._finish()

    def close(self) -> None:
        """Give the producer up with all that it still holds; never blocks for long, whatever the broker does."""
        self._producer.purge()
        for _ in range(PURGE_POLLS_MAX):
            if not len(self._producer):
                break
            self._producer.poll(POLL_SECONDS_MAX)

    def _fill(self, stop: threading.Event) -> None:
        """Send batches as long as there is room for them and something new."""
        while self._may_read() and not stop.is_set():
            events = self._way.outbox.read(self._cursor, FLIGHT_EVENTS_MAX, FLIGHT_BYTES_MAX)
            if not events:
                return
            self._send(events)
            self._producer.poll(0)
            self._advance()

    def _may_read(self) -> bool:
        if self._way.outbox.take_returned():
            self._rewind = True
        if self._rewind and self._window.empty:
            # Only now: what is in flight is still new in the outbox, and would be read a second time.
            self._cursor, self._rewind = START, False
        return not self._rewind and self._window.has_room and self._way.outbox.wait(self._cursor, 0)

    def _send(self, events: Sequence[StoredEvent]) -> None:
        """Send consecutive events as one batch, or as several around those that are too large."""
        flight = Flight(events[0].position)
        for event in events:
            if self._send_one(event, flight):
                flight.sent(event.position)
            else:
                self._launch(flight)
                flight = Flight(event.position + 1)
            self._cursor = event.position
        self._launch(flight)

    def _launch(self, flight: Flight) -> None:
        if flight.events:
            self._window.launch(flight)

    def _send_one(self, event: StoredEvent, flight: Flight) -> bool:
        """Give an event to the producer; tell whether it took it."""
        record = encode(event, self._way.gateway)
        while True:
            try:
                self._way.mode.send(self._producer, self._way.topic, record, flight.report)
                return True
            except BufferError:  # the user's own bounds of librdkafka's queue are below ours
                self._producer.poll(POLL_SECONDS_MAX)
                self._check()
            except KafkaException as error:
                if code_of(error) != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise SessionError(describe(error)) from error
                self._set_aside(event, len(record.value))
                return False

    def _set_aside(self, event: StoredEvent, size: int) -> None:
        if event.position not in self._way.oversized:
            self._way.oversized.add(event.position)
            label = event.label
            _log.error(_TOO_LARGE, event.fingerprint.hex(), label.epoch, label.sequence, size)

    def _wait(self) -> None:
        """Wait for whatever comes first of what can be waited for."""
        if self._window.flying or self._rewind or not self._window.has_room:
            self._producer.poll(POLL_SECONDS_MAX)
        else:
            self._way.outbox.wait(self._cursor, IDLE_SECONDS_MAX if self._window.empty else POLL_SECONDS_MAX)
            self._producer.poll(0)

    def _advance(self, *, at_once: bool = False) -> None:
        """Bring home what is acked and confirmed."""
        self._check()
        self._confirmation.ask(self._window.acked, at_once=at_once)
        try:
            confirmed = self._confirmation.take()
        except UnreachableError as error:
            self._way.link.down(error)
            return
        for batch in self._window.take_confirmed(confirmed, self._confirmation.expected):
            self._way.mode.end(batch)
            self._way.link.took()
            self.marked += 1

    def _check(self) -> None:
        """Raise SessionError where a delivery has failed or the producer as a whole."""
        failure = self._errors.fatal or self._window.settle()
        if failure is not None:
            raise SessionError(failure)
        if self._errors.all_down and self._window.flying:
            self._way.link.down(UnreachableError(self._errors.text or "all brokers are down"))
        self._errors.all_down = False

    def _finish(self) -> None:
        """Give what is in flight a moment to be reported and marked."""
        deadline = self._way.clock.monotonic() + STOP_MS_MAX
        while not self._window.empty and self._way.clock.monotonic() < deadline:
            self._producer.poll(POLL_SECONDS_MAX)
            self._advance(at_once=True)
