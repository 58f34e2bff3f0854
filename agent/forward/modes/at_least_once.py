"""At least once: every event reaches the topic; what one session has not marked, the next one sends again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import Producer

from agent.forward.errors import RefusedError, SessionError, UnreachableError
from agent.forward.kafka.client import LastError
from agent.forward.kafka.health import Silence
from agent.forward.kafka.topic import TopicView, leader_epochs
from agent.forward.modes.confirmation import Confirmation
from agent.forward.modes.in_flight import InFlightBatch, InFlightWindow
from agent.forward.modes.session import (
    FIXED,
    IDLE_SECONDS_MAX,
    POLL_SECONDS_MAX,
    START,
    STOP_MS_MAX,
    Session,
    SessionContext,
    serve,
)
from agent.store.port import StoredEvent

REPORTS_EVENTS: Final = 50
"""After how many events the reports so far are processed: in that call other threads run, which a compiled loop would
keep waiting until the end of the batch."""
IN_FLIGHT_MAX: Final = 8
"""How many batches may be sent and not yet acked: with a batch's bounds, the bound of the forwarder's memory."""


class AtLeastOnce:
    """An idempotent producer: within one session it retries without duplicating or reordering (decision 4)."""

    fixed: ClassVar[Mapping[str, str | None]] = {
        **FIXED,
        "acks": "all",
        "enable.idempotence": "true",
        "transactional.id": None,
    }

    def __init__(self) -> None:
        self.left: tuple[str, Sequence[InFlightBatch]] = ("", ())
        """The topic's id of the latest session, and what that has acked and not confirmed."""

    def open(
        self, context: SessionContext, config: dict[str, Any], topic: TopicView, stop: threading.Event
    ) -> PipelinedSession:
        """Implement `Mode`; the topic's state is later than all acks of the session before, and confirms them."""
        (topic_id, left), self.left = self.left, ("", ())
        if topic_id == topic.id:
            with suppress(SessionError):  # another leader, or none: it is sent again
                for in_flight in left:
                    context.outbox.mark_forwarded(in_flight.batch(topic.id, leader_epochs(topic.ends)))
        errors = LastError()
        return PipelinedSession(context, Producer({**config, "error_cb": errors}), errors, topic, self)


class PipelinedSession(Session):
    """Sends new events in order, several batches at a time, and marks them in order."""

    def __init__(
        self, context: SessionContext, producer: Producer, errors: LastError, topic: TopicView, mode: AtLeastOnce
    ) -> None:
        super().__init__(context, producer, errors)
        self._topic = topic
        self._mode = mode
        self._leader_epochs = leader_epochs(topic.ends)
        self._window = InFlightWindow(IN_FLIGHT_MAX)
        self._rewind = False
        self._alone: StoredEvent | None = None
        """The event that was sent alone, since it may be too large."""
        self._silence = Silence(context.clock, context.silence_ms)
        self._confirmation = Confirmation(context.watch, topic.id, context.clock, context.shared)
        self._is_unanswered = False
        """Whether the latest question after acks had no answer: then further acks do not make the link reachable."""

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._process_reports()
            self._fill(stop)
            self._wait()
            self._advance()
        self._finish()

    def close(self) -> None:
        self._confirmation.close()
        self._mode.left = self._topic.id, self._window.pop_confirmed(self._window.noted.to)
        super().close()

    def _fill(self, stop: threading.Event) -> None:
        """Send batches while the producer's queue has space and there are new events."""
        while self._may_read() and not stop.is_set():
            if self._context.oversized.due and self._window.in_flight:
                return
            events = self._context.oversized.next_try(partial(self._context.watch.read_id, stop)) or self._read()
            if not events:
                return
            alone = self._context.oversized.goes_alone(events[0].position)
            if alone and self._window.in_flight:
                return  # a refusal would not show which event it was
            self._send(events, stop)
            self._alone = events[0] if alone and self._window.in_flight else None
            self._producer.poll(0)
            self._advance()

    def _may_read(self) -> bool:
        if self._context.outbox.pop_returned():
            self._rewind = True
        if self._rewind and self._window.empty:
            # Only now: in-flight events are still new in the outbox, and would be read a second time.
            self._cursor, self._rewind = START, False
        if self._rewind or self._alone is not None or not self._window.has_space:
            return False
        return self._context.oversized.due or (not self._context.oversized.full and self._wait_for_new(0))

    def _read(self) -> Sequence[StoredEvent]:
        """Read new events after the cursor, without the held ones."""
        while events := self._read_new():
            if sendable := self._context.oversized.cut(events):
                return sendable
            self._cursor = events[-1].position
        return ()

    def _send(self, events: Sequence[StoredEvent], stop: threading.Event) -> None:
        """Send consecutive events as one batch, or as several, split at those that the producer refuses."""
        self._count_for_cap(events)
        in_flight = InFlightBatch(events[0].position, self._leader_epochs)
        full = partial(self._check_full, in_flight, stop)
        for event in events:
            if not self._hand_over(event, in_flight, full):
                self._add(in_flight)
                self._context.oversized.refused(event, self._size(event))
                in_flight = InFlightBatch(event.position + 1, self._leader_epochs)
                full = partial(self._check_full, in_flight, stop)
            if event.position % REPORTS_EVENTS == 0:
                self._producer.poll(0)
        self._cursor = max(self._cursor, events[-1].position)
        self._add(in_flight)

    def _add(self, in_flight: InFlightBatch) -> None:
        if in_flight.events:
            self._window.add(in_flight)

    def _wait(self) -> None:
        """Wait for a delivery report or a new event."""
        if self._window.in_flight or self._rewind or not self._window.has_space or self._context.oversized.full:
            serve(self._producer, POLL_SECONDS_MAX)
        else:
            self._wait_for_new(POLL_SECONDS_MAX if self._confirmation.is_asking else IDLE_SECONDS_MAX)
            self._producer.poll(0)

    def _advance(self, *, at_once: bool = False) -> None:
        """Mark the acked and confirmed batches."""
        self._check()
        rewinds = self._rewind and not self._window.in_flight  # once all is confirmed
        try:
            self._confirmation.request(self._window, soon=rewinds, at_once=at_once)
            confirmed = self._confirmation.poll(self._window)
        except UnreachableError as error:
            self._is_unanswered = True
            self._context.link.report_failure(error)
            return
        if confirmed is None:
            return
        self._is_unanswered = False
        self._leader_epochs = {**self._leader_epochs, **confirmed.leader_epochs}
        outbox = self._context.outbox
        try:
            for in_flight in self._window.pop_confirmed(confirmed.acked.to):
                outbox.mark_forwarded(in_flight.batch(self._topic.id, confirmed.leader_epochs))
                self._context.link.report_delivery()
                self.marked += 1
        finally:
            confirmed.hand_over(outbox, self._window.confirmed_to)

    def _check(self) -> None:
        """Raise SessionError where a delivery or the whole producer has failed."""
        self._context.wall_steps.check()
        self._errors.check()
        acked = self._window.noted.to
        failed = self._window.advance()
        if self._window.noted.to > acked and not self._is_unanswered:
            self._context.link.report_delivery()
        if failed is not None:
            self._refuse(failed)
        elif self._alone is not None and not self._window.in_flight:
            self._rewind |= self._context.oversized.accepted(self._alone.position)
            self._alone = None
        if self._silence.lasts(self._window.unreported):
            self._context.link.report_failure(UnreachableError(self._errors.text or str(self._silence)))

    def _check_full(self, in_flight: InFlightBatch, stop: threading.Event) -> None:
        """Raise SessionError where waiting for space in the producer's queue is pointless."""
        self._check()
        if in_flight.failure is not None:
            raise SessionError(in_flight.failure)
        if stop.is_set():
            raise SessionError("the agent stops")

    def _refuse(self, failed: InFlightBatch) -> None:
        """Hold an event that was refused alone; raise SessionError for any other failure."""
        if failed.refused and self._alone is not None:
            alone, self._alone = self._alone, None
            self._context.oversized.refused(alone, self._size(alone))
            self._window.drop(failed)
        elif failed.refused:
            self._context.oversized.suspect(failed.first, failed.last)
            raise RefusedError(f"{failed.failure}: sending {failed.events} events one by one")
        else:
            raise SessionError(failed.failure)

    def _finish(self) -> None:
        """Wait, up to STOP_MS_MAX, until the in-flight batches are reported and marked."""
        deadline = self._context.clock.monotonic_ms() + STOP_MS_MAX
        while not self._window.empty and self._context.clock.monotonic_ms() < deadline:
            serve(self._producer, POLL_SECONDS_MAX)
            self._advance(at_once=True)
