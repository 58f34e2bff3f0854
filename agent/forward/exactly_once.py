"""Exactly once into the topic: one batch, one Kafka transaction, and a marker in it that says which batch it was."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException, Producer, TopicPartition

from agent.forward.attempt import close
from agent.forward.client import LastError, open_reader
from agent.forward.error import ClonedError, SessionError, TopicReplacedError, UnreachableError
from agent.forward.link import Silence
from agent.forward.metadata import raw_metadata
from agent.forward.mode import (
    FLIGHT_BYTES_MAX,
    FLIGHT_EVENTS_MAX,
    IDLE_SECONDS_MAX,
    START,
    STOP_MS_MAX,
    Way,
)
from agent.forward.records import Record, encode
from agent.forward.recovery import HELD_BACK, await_stable, is_visible
from agent.forward.sending import discard, hand_over, serve
from agent.forward.topic import TopicView, leader_epochs
from agent.forward.transaction import GROUP_PREFIX, Intent, Marker, parse_marker, read_intent
from agent.forward.transactional import MARKER_PARTITION, STEP_SECONDS_MAX, Transactions, step
from agent.forward.window import Flight
from agent.settings import KafkaSettings
from agent.store.port import Batch, Outbox, StoredEvent

TRANSACTION_MS: Final = 10_000
"""After this the broker ends an open transaction, which holds back every reader of its partitions."""
REPORT_SECONDS: Final = 0.005
"""How long it waits for delivery reports at once: nothing else is on its way meanwhile."""
INTENT_FACT: Final = "transaction.intent"
"""The durable fact that says what the latest transaction holds."""
SETTLED_FACT: Final = "transaction.settled"
"""The number of the latest transaction whose events are marked; on disk together with the mark."""

_log = logging.getLogger(__name__)


class ExactlyOnce:
    """A transactional producer under the gateway's name.

    After init_transactions, which ends whatever an earlier producer of this name had begun, the latest intent says
    where its events would be; if they can be seen there, exactly they are marked, and nothing is sent twice.
    """

    fixed: Mapping[str, str | None]

    def __init__(self, settings: KafkaSettings, gateway: str) -> None:
        self._settings = settings
        self._gateway = gateway
        self._group = GROUP_PREFIX + gateway
        self._latest: TransactionalSession | None = None
        """The latest session of this run that has held the name."""
        self.fixed = {
            "acks": "all",
            "request.required.acks": None,
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": None,
            "transactional.id": gateway,
            "transaction.timeout.ms": str(TRANSACTION_MS),
            "message.timeout.ms": str(TRANSACTION_MS),
            "delivery.timeout.ms": None,
        }

    def open(self, way: Way, config: dict[str, Any], topic: TopicView, stop: threading.Event) -> TransactionalSession:
        """Implement `Mode`."""
        errors = LastError()
        producer = Producer({**config, "error_cb": errors})
        step(lambda: producer.init_transactions(STEP_SECONDS_MAX), "init_transactions", errors, stop)
        marker, group = step(lambda: self._look_up(way.topic, errors), "the marker's look-up", errors, stop)
        intent = read_intent(way.outbox.fact(INTENT_FACT))
        if intent is not None and intent.batch.topic_id == topic.id and not self._is_settled(way.outbox, intent):
            self._settle(way, intent, producer, stop)
        self._refuse_clones(way.outbox, intent, marker)
        number = 0 if intent is None else intent.marker.number
        self._latest = TransactionalSession(way, Transactions(producer, errors, group), topic, marker, number)
        return self._latest

    def _look_up(self, topic: str, errors: LastError) -> tuple[Marker | None, object]:
        """Read the marker, by a client of its own: one that has lost a coordinator may never find another."""
        with closing(open_reader(self._settings, self._group, errors, unstable=True)) as reader:
            answer = reader.committed([TopicPartition(topic, MARKER_PARTITION)], timeout=STEP_SECONDS_MAX)[0]
            if answer.error is not None:
                raise KafkaException(answer.error)
            marker = parse_marker(raw_metadata(answer)) if answer.offset >= 0 else None
            return marker, reader.consumer_group_metadata()

    def _is_settled(self, outbox: Outbox, intent: Intent) -> bool:
        """Whether a transaction is marked, on disk or not yet."""
        settled = max(int(outbox.fact(SETTLED_FACT) or 0), 0 if self._latest is None else self._latest.settled)
        return intent.marker.number <= settled

    def _settle(self, way: Way, intent: Intent, producer: Producer, stop: threading.Event) -> None:
        """Mark what the latest transaction holds, where Kafka shows it; it is sent again where it does not."""
        reader = open_reader(self._settings, self._group, LastError())
        try:
            visible = is_visible(way, intent, producer, reader, stop)
        finally:
            close(reader, stop)
        if not visible:
            _log.info("delivery=exactly-once transaction=%s visible=no effect=%r", intent.marker, "sent again")
            return
        note = (SETTLED_FACT, str(intent.marker.number))
        runs = [(events[0].position, events[-1].position) for events in _still_new(way.outbox, intent)]
        for first, last in runs:
            batch = replace(intent.batch, first=first, last=last)
            way.outbox.mark_forwarded(batch, note if (first, last) == runs[-1] else None)
        if not runs:
            way.outbox.set_fact(*note)
        count = sum(last - first + 1 for first, last in runs)
        _log.info("delivery=exactly-once recovered=%d transaction=%s", count, intent.marker)

    def _refuse_clones(self, outbox: Outbox, intent: Intent | None, marker: Marker | None) -> None:
        """Raise ClonedError where somebody else has committed under our name since this agent held it."""
        known = () if intent is None else (intent.marker, intent.previous)
        if marker is None or marker in known or marker.epoch == outbox.epoch():
            return
        if self._latest is not None:
            raise ClonedError(
                f"another agent sends as {self._gateway!r}, in epoch {marker.epoch}: end it, or give one of the two"
                " another gateway.id; then restart this agent"
            )
        _log.warning(
            "delivery=exactly-once marker=foreign epoch=%s effect=%r",
            marker.epoch,
            "the store is older than what was sent: what was sent since its backup is sent again",
        )


class TransactionalSession:
    """Sends what is new in order, one transaction at a time, begun only with a batch in hand."""

    def __init__(
        self, way: Way, transactions: Transactions, topic: TopicView, marker: Marker | None, latest: int
    ) -> None:
        self._way = way
        self._transactions = transactions
        self._topic = topic
        self._leader_epochs = topic.leader_epochs
        self._marker = marker
        """What stands in Kafka."""
        self._number = latest
        self.settled = 0
        """The number of the latest transaction that this session has marked."""
        self._cursor = START
        self._cleared: set[int] = set()
        """The partitions in which nothing of an earlier transaction hangs: one of this session has ended there."""
        self.marked = 0

    def run(self, stop: threading.Event) -> None:
        """Implement `Session`."""
        outbox = self._way.outbox
        ask = partial(self._way.watch.read, stop)
        while not stop.is_set():
            self._way.wall_steps.check()
            if outbox.take_returned():
                self._cursor = START
            if events := self._way.oversized.next_try(ask) or self._read(stop):
                self._send(events, stop)

    def _read(self, stop: threading.Event) -> Sequence[StoredEvent]:
        """Wait a moment for what is new behind the cursor, and read it without what waits since it is too large."""
        if self._way.oversized.full:
            stop.wait(IDLE_SECONDS_MAX)
            return ()
        if not self._way.outbox.wait(self._cursor, IDLE_SECONDS_MAX):
            return ()
        events = self._way.outbox.read(self._cursor, FLIGHT_EVENTS_MAX, FLIGHT_BYTES_MAX)
        sendable = self._way.oversized.cut(events)
        if events and not sendable:
            self._cursor = events[-1].position
        return sendable

    def close(self) -> None:
        """Implement `Session`."""
        discard(self._transactions.producer)

    def _send(self, events: Sequence[StoredEvent], stop: threading.Event) -> None:
        """Carry out one transaction, and mark its events."""
        batch = self._fill(events, stop)
        while batch is not None and not batch.partitions.keys() <= self._cleared:
            self._clear(batch, stop)
            batch = self._fill(events, stop)
        if batch is None:
            return
        marker = self._intend(events, batch)
        self._transactions.commit(self._way.topic, marker, stop)
        stable = await_stable(self._way, batch, stop)
        if stable is None:
            raise SessionError("the transaction is committed, and readers of the topic do not see it")
        actual = self._way.watch.read(stop)
        if actual != self._topic.id:
            raise TopicReplacedError(f"the topic is {actual} now, and was {self._topic.id} before the first send")
        self._way.outbox.mark_forwarded(batch, (SETTLED_FACT, str(marker.number)))
        self._leader_epochs = {**self._leader_epochs, **leader_epochs(stable)}
        self._marker = marker
        self.settled = marker.number
        self._cursor = max(self._cursor, batch.last)
        if len(events) == 1 and self._way.oversized.taken(batch.first):
            self._cursor = START
        self._way.link.took()
        self.marked += 1

    def _fill(self, events: Sequence[StoredEvent], stop: threading.Event) -> Batch | None:
        """Begin a transaction and send the events in it; None, and the transaction aborted, where one is too large."""
        flight = Flight(events[0].position, self._leader_epochs)
        self._transactions.begin()
        if not (self._produce(events, flight) and self._await_reports(events, flight, stop)):
            self._transactions.abort(stop)
            self._cleared.clear()
            return None
        ends = self._way.watch.ends(flight.partitions, stop)
        return flight.batch(self._topic.id, leader_epochs(ends))

    def _clear(self, batch: Batch, stop: threading.Event) -> None:
        """Abort the transaction, and with it what an earlier one of ours has left open in its partitions.

        An abort that the coordinator has not carried out in a partition leaves records there that share the fate of the
        producer's next transaction: they must not be committed with it. That readers get past these records shows
        that this one was carried out.
        """
        self._transactions.abort(stop)
        if await_stable(self._way, batch, stop) is None:
            raise SessionError(HELD_BACK)
        self._cleared |= batch.partitions.keys()

    def _intend(self, events: Sequence[StoredEvent], batch: Batch) -> Marker:
        """Write down what is about to be committed, and give its marker."""
        self._number += 1
        marker = Marker(self._way.outbox.epoch(), self._number)
        intent = Intent(marker, self._marker, batch, (events[0].label, events[-1].label))
        self._way.outbox.set_fact(INTENT_FACT, str(intent))
        return marker

    def _produce(self, events: Sequence[StoredEvent], flight: Flight) -> bool:
        """Hand the events to the producer; False where it has refused one for its size."""
        for event in events:
            record = encode(event, self._way.gateway)
            if not self._hand_over(record, flight):
                self._way.oversized.refused(event, len(record.value))
                return False
            flight.sent(event.position)
        return True

    def _hand_over(self, record: Record, flight: Flight) -> bool:
        """Hand a record to the producer; raise SessionError with the reason for which the transaction has failed.

        A transaction that a report has ended meanwhile makes the call an "erroneous state" only.
        """
        producer, topic = self._transactions.producer, self._way.topic
        try:
            return hand_over(producer, topic, record, flight.report, self._transactions.check)
        except SessionError as error:
            raise SessionError(self._transactions.why(topic, str(error))) from error

    def _await_reports(self, events: Sequence[StoredEvent], flight: Flight, stop: threading.Event) -> bool:
        """Wait until every record is reported; False where the broker has refused one for its size.

        Raises SessionError where one has failed otherwise.
        """
        silence = Silence(self._way.clock, self._way.silence_ms)
        deadline: int | None = None
        while flight.unreported:
            serve(self._transactions.producer, REPORT_SECONDS)
            self._way.wall_steps.check()
            self._transactions.check()
            if silence.lasts(flight.unreported):
                self._way.link.down(UnreachableError(self._transactions.errors.text or str(silence)))
            if stop.is_set():
                deadline = deadline or self._way.clock.monotonic() + STOP_MS_MAX
                if self._way.clock.monotonic() > deadline:
                    raise SessionError("the agent stops")
        if flight.refused and len(events) == 1:
            self._way.oversized.refused(events[0], len(encode(events[0], self._way.gateway).value))
        elif flight.refused:
            self._way.oversized.suspect(flight.first, flight.last)
        elif flight.failure is not None:
            raise SessionError(self._transactions.why(self._way.topic, flight.failure))
        return not flight.refused


def _still_new(outbox: Outbox, intent: Intent) -> Iterator[Sequence[StoredEvent]]:
    """Return an intent's events that are new, in runs: what was given up since is a gap between them.

    Raises SessionError where other labels stand at its positions.
    """
    after = intent.batch.first - 1
    while after < intent.batch.last:
        read = outbox.read(after, intent.batch.last - after, FLIGHT_BYTES_MAX)
        events = [event for event in read if event.position <= intent.batch.last]
        if not events:
            return
        labels = dict(zip((intent.batch.first, intent.batch.last), intent.labels, strict=True))
        for event in events:
            if labels.get(event.position, event.label) != event.label:
                raise SessionError(f"transaction {intent.marker} was carried out with other events than are stored")
        yield events
        after = events[-1].position
