"""At most once: an event is released before it is sent, and is never sent again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from agent.forward.errors import SessionError, TopicMissingError, UnreachableError
from agent.forward.facts import InDoubtBatches, read_in_doubt
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, describe
from agent.forward.kafka.record import is_own
from agent.forward.kafka.topic import TopicView
from agent.forward.modes import oversized
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.session import (
    FIXED,
    IDLE_SECONDS_MAX,
    POLL_SECONDS_MAX,
    START,
    Session,
    SessionContext,
    serve,
)
from agent.store.facts import IN_DOUBT
from agent.store.port import Outbox, StoredEvent

CHECK_SECONDS_MAX: Final = 3.0
"""How long the broker may take to answer before each batch: without an answer nothing is sent."""
MESSAGE_MS: Final = 5_000
"""How long a record may wait for its ack: less than the cluster takes to fence a failed broker (9 s), after which the
client sends the record to the next broker, although the first may have appended it."""

_log = logging.getLogger(__name__)


class AtMostOnce:
    """A producer that repeats nothing; acks only show what may be lost (decision 52)."""

    fixed: ClassVar[Mapping[str, str | None]] = {
        **FIXED,
        "acks": "1",
        "retries": "0",
        "message.send.max.retries": None,
        "enable.idempotence": "false",
        "transactional.id": None,
        "message.timeout.ms": str(MESSAGE_MS),
        "delivery.timeout.ms": None,
    }

    def open(
        self, context: SessionContext, config: dict[str, Any], topic: TopicView, stop: threading.Event
    ) -> AtMostOnceSession:
        """Implement `Mode`; events that another mode holds because of their size are sent with the others."""
        context.oversized.forget()
        in_doubt = InDoubtRecord(context.outbox)
        in_doubt.abandon("the connection or the agent ended")
        errors = LastError()
        return AtMostOnceSession(context, Producer({**config, "error_cb": errors}), errors, in_doubt)


class AtMostOnceSession(Session):
    """Sends new events in order, a batch at a time, each only after the broker has answered since the last."""

    def __init__(self, context: SessionContext, producer: Producer, errors: LastError, in_doubt: InDoubtRecord) -> None:
        super().__init__(context, producer, errors)
        self._in_doubt = in_doubt

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._process_reports()
            if self._context.outbox.pop_returned():
                self._cursor = START
            seconds = 0 if self._in_doubt.in_flight else IDLE_SECONDS_MAX
            if not self._wait_for_new(seconds):
                self._note_arrival()
                continue
            self._check_connection()
            if events := self._read_new():
                self._send(events)
        self._note_arrival()

    def _note_arrival(self) -> None:
        """Record that the batch in flight has arrived, where there is one and the connection has held."""
        if self._in_doubt.in_flight:
            self._check_connection()
            self._in_doubt.clear()

    def _send(self, events: Sequence[StoredEvent]) -> None:
        """Release a batch, then send it.

        Send nothing where a full store has dropped some of it: a resend of that is stored as new.
        """
        in_flight = InFlightBatch(events[0].position, {})
        if not self._in_doubt.release(events[0].position, events[-1].position):
            return  # the next turn reads what is left
        self._cursor = events[-1].position
        self._count_for_cap(events)
        for event in events:
            if not self._hand_over(event, in_flight, lambda: None):
                self._refuse(event, self._size(event))
        while in_flight.unreported:  # ends: a record is reported after MESSAGE_MS at the latest
            self._context.wall_steps.check()
            serve(self._producer, POLL_SECONDS_MAX)
        if in_flight.failure is not None:
            raise SessionError(in_flight.failure)
        self.marked += 1

    def _refuse(self, event: StoredEvent, size: int) -> None:
        """Abandon an event that the producer refuses for its size.

        The gateway's own event is only logged: the event that declares it would be refused in turn, without end.
        """
        if not is_own(event):
            oversized.give_up(self._context.outbox, event, size)
            return
        _log.error(
            "event=lost reason=%r epoch=%s sequence=%d bytes=%d hint=%r",
            *(oversized.REASON, event.label.epoch, event.label.sequence, size, oversized.HINT),
        )

    def _check_connection(self) -> None:
        """Raise SessionError where the broker does not answer, or the connection was lost since its last answer."""
        try:
            request = partial(self._producer.list_topics, self._context.topic, CHECK_SECONDS_MAX)
            cluster = attempt(request, 2 * CHECK_SECONDS_MAX, threading.Event(), "the topic's look-up")
            topic = cluster.topics[self._context.topic]
        except KafkaException as error:
            self._producer.poll(0)  # the client reports the cause only then
            raise UnreachableError(self._errors.text or describe(error)) from error
        if topic.error is not None:
            if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissingError(f"topic {self._context.topic} does not exist")
            raise SessionError(topic.error.str())
        if self._errors.text is not None:
            raise UnreachableError(self._errors.text)
        self._context.link.report_delivery()


class InDoubtRecord:
    """Keeps the in-doubt events in the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._state = read_in_doubt(outbox.fact(IN_DOUBT))

    @property
    def in_flight(self) -> int:
        return self._state.in_flight

    def release(self, first: int, last: int) -> bool:
        """Release a batch from the outbox, on disk, before it is sent; return False where not all of it is new.

        The batch before it has arrived.
        """
        state = InDoubtBatches(first, last, self._state.lost_max)
        released = self._outbox.release(first, last, (IN_DOUBT, str(state)))
        if released:
            self._state = state
        return released

    def abandon(self, reason: str) -> None:
        """Log and record that it is unknown whether the batch in flight has arrived."""
        if self._state.in_flight:
            _log.warning(
                "delivery=at-most-once in_flight_at_most=%d reason=%r effect=%r",
                self._state.in_flight,
                reason,
                "some of them may be lost; none is sent again",
            )
            self.clear(lost=self._state.in_flight)

    def clear(self, *, lost: int = 0) -> None:
        """Record that nothing is in flight any more, and that `lost` events may be lost."""
        self._state = InDoubtBatches(lost_max=self._state.lost_max + lost)
        self._outbox.set_fact(IN_DOUBT, str(self._state))
