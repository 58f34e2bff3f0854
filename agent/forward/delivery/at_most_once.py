"""At most once: an event is done with before it is sent, and is never sent again, whatever becomes of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from agent.forward.delivery import oversized
from agent.forward.delivery.in_doubt import read_account
from agent.forward.delivery.in_flight import Flight
from agent.forward.delivery.produce import discard, hand_over, serve
from agent.forward.delivery.session import (
    FLIGHT_BYTES_MAX,
    FLIGHT_EVENTS_MAX,
    IDLE_SECONDS_MAX,
    POLL_SECONDS_MAX,
    START,
    Way,
)
from agent.forward.errors import SessionError, TopicMissingError, UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, describe
from agent.forward.kafka.record import encode, is_own
from agent.forward.kafka.topic import TopicView
from agent.store.facts import IN_DOUBT
from agent.store.port import Outbox, StoredEvent

CHECK_SECONDS_MAX: Final = 3.0
"""How long the broker may take to answer before each batch: without an answer nothing is sent."""
MESSAGE_MS: Final = 5_000
"""How long a record may wait for its ack: less than brokers take to call one of them gone (9 s), which has the client
send to the next one what the first may have taken."""

_log = logging.getLogger(__name__)


class AtMostOnce:
    """A producer that repeats nothing; acks only tell what may be lost."""

    fixed: Mapping[str, str | None] = {
        "acks": "1",
        "request.required.acks": None,
        "retries": "0",
        "message.send.max.retries": None,
        "enable.idempotence": "false",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": None,
        "transactional.id": None,
        "message.timeout.ms": str(MESSAGE_MS),
        "delivery.timeout.ms": None,
    }

    def open(self, way: Way, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> AtMostOnceSession:
        """Begin a session, as `Mode.open` says; what another mode had set aside for its size goes with the rest."""
        way.oversized.forget()
        ledger = _Ledger(way.outbox)
        ledger.lose("the connection or the agent ended")
        errors = LastError()
        return AtMostOnceSession(way, Producer({**config, "error_cb": errors}), errors, ledger)


class AtMostOnceSession:
    """Sends what is new in order, a batch at a time, each only after the broker has answered since the last."""

    def __init__(self, way: Way, producer: Producer, errors: LastError, ledger: _Ledger) -> None:
        self._way = way
        self._producer = producer
        self._errors = errors
        self._ledger = ledger
        self._cursor = START
        self.marked = 0

    def run(self, stop: threading.Event) -> None:
        """Implement `Session`."""
        outbox = self._way.outbox
        while not stop.is_set():
            if outbox.take_returned():
                self._cursor = START
            if not outbox.wait(self._cursor, 0 if self._ledger.in_flight else IDLE_SECONDS_MAX):
                if self._ledger.in_flight:
                    self._check_connection()
                    self._ledger.settle(on_disk=True)
                continue
            self._check_connection()
            self._ledger.settle(on_disk=False)
            events = outbox.read(self._cursor, FLIGHT_EVENTS_MAX, FLIGHT_BYTES_MAX)
            if events:
                self._send(events)
        if self._ledger.in_flight:
            self._check_connection()
            self._ledger.settle(on_disk=True)

    def close(self) -> None:
        """Implement `Session`."""
        discard(self._producer)

    def _send(self, events: Sequence[StoredEvent]) -> None:
        """Be done with a batch, then send it."""
        flight = Flight(events[0].position, {})
        self._ledger.release(events[0].position, events[-1].position)
        self._cursor = events[-1].position
        for event in events:
            record = encode(event, self._way.gateway)
            if hand_over(self._producer, self._way.topic, record, flight.report, lambda: None):
                flight.sent(event.position)
            else:
                self._refuse(event, len(record.value))
        while flight.unreported:  # ends: a record is reported after MESSAGE_MS at the latest
            self._way.wall_steps.check()
            serve(self._producer, POLL_SECONDS_MAX)
        if flight.failure is not None:
            raise SessionError(flight.failure)
        self.marked += 1

    def _refuse(self, event: StoredEvent, size: int) -> None:
        """Abandon an event that the producer refuses for its size.

        The gateway's own is only logged: another one of its own would declare it, and be refused in turn, without end.
        """
        if not is_own(event):
            oversized.give_up(self._way.outbox, event, size)
            return
        _log.error(
            "event=lost reason=%r epoch=%s sequence=%d bytes=%d hint=%r",
            *(oversized.REASON, event.label.epoch, event.label.sequence, size, oversized.HINT),
        )

    def _check_connection(self) -> None:
        """Ask the broker; raise where it does not answer, or where the connection was lost since it last did."""
        try:
            ask = partial(self._producer.list_topics, self._way.topic, CHECK_SECONDS_MAX)
            cluster = attempt(ask, 2 * CHECK_SECONDS_MAX, threading.Event(), "the topic's look-up")
            topic = cluster.topics[self._way.topic]
        except KafkaException as error:
            self._producer.poll(0)  # only then it tells why
            raise UnreachableError(self._errors.text or describe(error)) from error
        if topic.error is not None:
            if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicMissingError(f"topic {self._way.topic} does not exist")
            raise SessionError(topic.error.str())
        if self._errors.text is not None:
            raise UnreachableError(self._errors.text)
        self._way.link.took()


class _Ledger:
    """Keeps the account in the outbox."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._account = read_account(outbox.fact(IN_DOUBT))

    @property
    def in_flight(self) -> int:
        return self._account.in_flight

    def release(self, first: int, last: int) -> None:
        """Be done with a batch, on disk, before it is sent."""
        account = self._account.sending(first, last)
        self._outbox.release(first, last, (IN_DOUBT, str(account)))
        self._account = account

    def settle(self, *, on_disk: bool) -> None:
        """Note that all has arrived; on disk with the next batch, or at once."""
        self._account = self._account.settled()
        if on_disk:
            self._outbox.set_fact(IN_DOUBT, str(self._account))

    def lose(self, reason: str) -> None:
        """Note, and say, that nobody knows what became of what was in flight."""
        if self._account.in_flight:
            _log.warning(
                "delivery=at-most-once in_flight_at_most=%d reason=%r effect=%r",
                self._account.in_flight,
                reason,
                "some of them may be lost; none is sent again",
            )
            self._account = self._account.gone()
            self._outbox.set_fact(IN_DOUBT, str(self._account))
