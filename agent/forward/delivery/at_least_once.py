"""At least once: every event reaches the topic; what a session did not bring home, the next one sends again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Producer

from agent.forward.delivery.confirmation import Confirmation
from agent.forward.delivery.in_flight import Flight, Window
from agent.forward.delivery.produce import discard, hand_over, serve
from agent.forward.delivery.session import (
    FLIGHT_BYTES_MAX,
    FLIGHT_EVENTS_MAX,
    IDLE_SECONDS_MAX,
    POLL_SECONDS_MAX,
    START,
    STOP_MS_MAX,
    Way,
)
from agent.forward.errors import RefusedError, SessionError, UnreachableError
from agent.forward.kafka.client import LastError
from agent.forward.kafka.health import Silence
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import TopicView
from agent.store.port import StoredEvent

FLIGHTS_MAX: Final = 8
"""How many batches may be sent and not yet acked; with a batch's bounds it bounds the forwarder's memory."""


class AtLeastOnce:
    """An idempotent producer: it repeats what it must without doubling or reordering, as long as it lives."""

    fixed: Mapping[str, str | None] = {
        "acks": "all",
        "request.required.acks": None,
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": None,
        "transactional.id": None,
    }

    def open(self, way: Way, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> PipelinedSession:
        """Implement `Mode`."""
        errors = LastError()
        return PipelinedSession(way, Producer({**config, "error_cb": errors}), errors, topic)


class PipelinedSession:
    """Sends what is new in order, several batches at a time, and marks it in order."""

    def __init__(self, way: Way, producer: Producer, errors: LastError, topic: TopicView) -> None:
        self._way = way
        self._producer = producer
        self._errors = errors
        self._topic = topic
        self._leader_epochs = topic.leader_epochs
        self._window = Window(FLIGHTS_MAX)
        self._cursor = START
        self._rewind = False
        self._alone: StoredEvent | None = None
        """The event that is on its way alone, since it may be too large."""
        self._silence = Silence(way.clock, way.silence_ms)
        self._confirmation = Confirmation(way.watch, topic.id, way.clock)
        self.marked = 0

    def run(self, stop: threading.Event) -> None:
        """Implement `Session`."""
        while not stop.is_set():
            self._fill(stop)
            self._wait()
            self._advance()
        self._finish()

    def close(self) -> None:
        """Implement `Session`."""
        discard(self._producer)

    def _fill(self, stop: threading.Event) -> None:
        """Send batches as long as there is room for them and something new."""
        while self._may_read() and not stop.is_set():
            if self._way.oversized.due and self._window.flying:
                return
            events = self._way.oversized.next_try(partial(self._way.watch.read, stop)) or self._read()
            if not events:
                return
            alone = self._way.oversized.goes_alone(events[0].position)
            if alone and self._window.flying:
                return  # a refusal would not tell which it was
            self._send(events, stop)
            self._alone = events[0] if alone and self._window.flying else None
            self._producer.poll(0)
            self._advance()

    def _may_read(self) -> bool:
        if self._way.outbox.take_returned():
            self._rewind = True
        if self._rewind and self._window.empty:
            # Only now: what is in flight is still new in the outbox, and would be read a second time.
            self._cursor, self._rewind = START, False
        if self._rewind or self._alone is not None or not self._window.has_room:
            return False
        return self._way.oversized.due or (not self._way.oversized.full and self._way.outbox.wait(self._cursor, 0))

    def _read(self) -> Sequence[StoredEvent]:
        """Read what is new behind the cursor, without what waits since it is too large."""
        while events := self._way.outbox.read(self._cursor, FLIGHT_EVENTS_MAX, FLIGHT_BYTES_MAX):
            if sendable := self._way.oversized.cut(events):
                return sendable
            self._cursor = events[-1].position
        return ()

    def _send(self, events: Sequence[StoredEvent], stop: threading.Event) -> None:
        """Send consecutive events as one batch, or as several around those that the producer refuses."""
        flight = Flight(events[0].position, self._leader_epochs)
        full = partial(self._check_full, flight, stop)
        for event in events:
            record = encode(event, self._way.gateway)
            if hand_over(self._producer, self._way.topic, record, flight.report, full):
                flight.sent(event.position)
            else:
                self._launch(flight)
                self._way.oversized.refused(event, len(record.value))
                flight = Flight(event.position + 1, self._leader_epochs)
                full = partial(self._check_full, flight, stop)
            self._cursor = max(self._cursor, event.position)
        self._launch(flight)

    def _launch(self, flight: Flight) -> None:
        if flight.events:
            self._window.launch(flight)

    def _wait(self) -> None:
        """Wait for whatever comes first of what can be waited for."""
        if self._window.flying or self._rewind or not self._window.has_room or self._way.oversized.full:
            serve(self._producer, POLL_SECONDS_MAX)
        else:
            self._way.outbox.wait(self._cursor, IDLE_SECONDS_MAX if self._window.empty else POLL_SECONDS_MAX)
            self._producer.poll(0)

    def _advance(self, *, at_once: bool = False) -> None:
        """Bring home what is acked and confirmed."""
        self._check()
        self._confirmation.ask(self._window, at_once=at_once)
        try:
            confirmed = self._confirmation.take()
        except UnreachableError as error:
            self._way.link.down(error)
            return
        if confirmed is None:
            return
        self._leader_epochs = {**self._leader_epochs, **confirmed.leader_epochs}
        for flight in self._window.take_confirmed(confirmed.flights):
            self._way.outbox.mark_forwarded(flight.batch(self._topic.id, confirmed.leader_epochs))
            self._way.link.took()
            self.marked += 1

    def _check(self) -> None:
        """Raise SessionError where a delivery has failed or the producer as a whole."""
        self._way.wall_steps.check()
        if self._errors.fatal is not None:
            raise SessionError(self._errors.fatal)
        failed = self._window.settle()
        if failed is not None:
            self._refuse(failed)
        elif self._alone is not None and not self._window.flying:
            self._rewind |= self._way.oversized.taken(self._alone.position)
            self._alone = None
        if self._silence.lasts(self._window.unreported):
            self._way.link.down(UnreachableError(self._errors.text or str(self._silence)))

    def _check_full(self, flight: Flight, stop: threading.Event) -> None:
        """Raise SessionError where there is no use in waiting for room in the producer's queue."""
        self._check()
        if flight.failure is not None:
            raise SessionError(flight.failure)
        if stop.is_set():
            raise SessionError("the agent stops")

    def _refuse(self, failed: Flight) -> None:
        """Set an event aside that was refused alone; raise SessionError for any other failure."""
        if failed.refused and self._alone is not None:
            alone, self._alone = self._alone, None
            self._way.oversized.refused(alone, len(encode(alone, self._way.gateway).value))
            self._window.drop(failed)
        elif failed.refused:
            self._way.oversized.suspect(failed.first, failed.last)
            raise RefusedError(f"{failed.failure}: sending {failed.events} events one by one")
        else:
            raise SessionError(failed.failure)

    def _finish(self) -> None:
        """Wait a moment for what is in flight to be reported and marked."""
        deadline = self._way.clock.monotonic_ms() + STOP_MS_MAX
        while not self._window.empty and self._way.clock.monotonic_ms() < deadline:
            serve(self._producer, POLL_SECONDS_MAX)
            self._advance(at_once=True)
