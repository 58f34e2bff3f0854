"""Exactly once: each batch is one Kafka transaction, with a marker that identifies the batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from agent.config.settings import KafkaSettings
from agent.forward.errors import ClonedError, SessionError, UnreachableError
from agent.forward.kafka.attempt import close
from agent.forward.kafka.client import OPENING_SECONDS_MAX, LastError, open_reader, raw_metadata
from agent.forward.kafka.health import Silence
from agent.forward.kafka.topic import TopicView, leader_epochs
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.session import (
    FIXED,
    IDLE_SECONDS_MAX,
    START,
    STOP_MS_MAX,
    Session,
    SessionContext,
    serve,
)
from agent.forward.modes.transaction import GROUP_PREFIX, Intent, Marker, parse_marker, read_intent
from agent.forward.modes.transactional import (
    HELD_BACK,
    MARKER_PARTITION,
    TransactionalProducer,
    await_stable,
    end_seconds_max,
    is_committed,
    is_visible,
    step,
    still_new,
)
from agent.store.facts import TRANSACTION_INTENT, TRANSACTION_SETTLED
from agent.store.port import Batch, Outbox, StoredEvent

TRANSACTION_MS: Final = 10_000
"""After this the broker aborts an open transaction, which blocks every reader of committed records."""
REPORT_SECONDS: Final = 0.005
"""How long a session waits at once for delivery reports: nothing else is in flight meanwhile."""

_log = logging.getLogger(__name__)


class ExactlyOnce:
    """A transactional producer, with the name of the gateway, or of one of its lanes, as its transactional id.

    init_transactions ends any transaction that an earlier producer of this name has begun. The latest intent contains
    the offsets of its events: if they are visible there, they are marked, and nothing is sent twice.
    """

    fixed: Mapping[str, str | None]

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        """Create the mode; `name` is the transactional id."""
        self._settings = settings
        self._name = name
        self._group = GROUP_PREFIX + name
        self.settled: int | None = None
        """What the latest session of this run that has held the transactional id has marked last; 0 before that."""
        self._found: Marker | None = None
        """The marker that was in Kafka when that session was opened."""
        self.epochs: set[str] = set()
        """The epochs of the transactions of this run."""
        self.fixed = {
            **FIXED,
            "acks": "all",
            "enable.idempotence": "true",
            "transactional.id": name,
            "transaction.timeout.ms": str(TRANSACTION_MS),
            "message.timeout.ms": str(TRANSACTION_MS),
            "delivery.timeout.ms": None,
        }

    def open(
        self, context: SessionContext, config: dict[str, Any], topic: TopicView, stop: threading.Event
    ) -> TransactionalSession:
        errors = LastError()
        producer = Producer({**config, "error_cb": errors})
        register = partial(producer.init_transactions, OPENING_SECONDS_MAX)
        look_up = partial(self._look_up, context.topic, errors)
        step(register, "init_transactions", errors, stop, OPENING_SECONDS_MAX)
        marker, group = step(look_up, "the marker's look-up", errors, stop, OPENING_SECONDS_MAX)
        transactional = TransactionalProducer(producer, errors, group, end_seconds_max(config))
        intent = read_intent(context.outbox.fact(TRANSACTION_INTENT))
        on_disk = int(context.outbox.fact(TRANSACTION_SETTLED) or 0)
        settled = max(on_disk, self.settled or 0)
        # A salvage may have lost the intent, or its latest version, and kept the number of the settled one.
        number = on_disk if intent is None else max(on_disk, intent.marker.number)
        with ExitStack() as opened:
            reader = open_reader(self._settings, self._group, LastError(), uplink=context.lane.uplink)
            opened.callback(close, reader, stop)
            if intent is not None and intent.batch.topic_id == topic.id and intent.marker.number > settled:
                self._settle(context, intent, transactional, reader, stop)
            self._refuse_clones(context.outbox, intent, marker, number)
            opened.pop_all()
        self.settled, self._found = 0, marker
        return TransactionalSession(context, transactional, reader, topic, marker, number, self)

    def _look_up(self, topic: str, errors: LastError) -> tuple[Marker | None, object]:
        """Read the marker, with a new client: one that has lost a coordinator may never find another."""
        with closing(open_reader(self._settings, self._group, errors, unstable=True)) as reader:
            answer = reader.committed([TopicPartition(topic, MARKER_PARTITION)], timeout=OPENING_SECONDS_MAX)[0]
            if answer.error is not None:
                raise KafkaException(answer.error)
            marker = parse_marker(raw_metadata(answer)) if answer.offset >= 0 else None
            return marker, reader.consumer_group_metadata()

    def _settle(
        self,
        context: SessionContext,
        intent: Intent,
        transactional: TransactionalProducer,
        reader: Consumer,
        stop: threading.Event,
    ) -> None:
        """Mark the latest transaction's events where they are visible; otherwise they stay new and are sent again."""
        if not is_visible(context, intent, transactional, reader, stop):
            _log.info("delivery=exactly-once transaction=%s visible=no effect=%r", intent.marker, "sent again")
            return
        note = (TRANSACTION_SETTLED, str(intent.marker.number))
        runs = [(events[0].position, events[-1].position) for events in still_new(context.outbox, intent)]
        for first, last in runs:
            batch = replace(intent.batch, first=first, last=last)
            context.outbox.mark_forwarded(batch, note if (first, last) == runs[-1] else None)
        if not runs:
            context.outbox.set_fact(*note)
        count = sum(last - first + 1 for first, last in runs)
        _log.info("delivery=exactly-once recovered=%d transaction=%s", count, intent.marker)

    def _refuse_clones(self, outbox: Outbox, intent: Intent | None, marker: Marker | None, number: int) -> None:
        """Raise ClonedError where another agent has committed under this name since this agent held it.

        A marker that was there before, or is of this run, proves no other agent: a broker may have carried out a commit
        without its offsets. Nor does an older one of this store: a coordinator that loads its log a second time while
        it serves answers for seconds as it would have at any moment before (Kafka 4.3, after a kill of the broker).
        """
        known = (self._found,) if intent is None else (self._found, intent.marker, intent.previous)
        if marker is None or marker in known or marker.epoch in self.epochs:
            return
        if marker.number <= number and outbox.has_epoch(marker.epoch):
            return
        if self.settled is not None:
            raise ClonedError(
                f"another agent sends as {self._name!r}, in epoch {marker.epoch}: stop it, or configure another"
                " gateway.id for one of the two; then restart this agent"
            )
        _log.warning(
            "delivery=exactly-once marker=foreign epoch=%s effect=%r",
            marker.epoch,
            "the store is older than what was sent: what was sent since its backup is sent again",
        )


class TransactionalSession(Session):
    """Sends new events in order, one transaction at a time; each begins only once its batch was read."""

    def __init__(
        self,
        context: SessionContext,
        transactional: TransactionalProducer,
        reader: Consumer,
        topic: TopicView,
        marker: Marker | None,
        latest: int,
        mode: ExactlyOnce,
    ) -> None:
        super().__init__(context, transactional.producer, transactional.errors)
        self._transactional = transactional
        self._reader = reader
        """Receives committed records only."""
        self._topic = topic
        self._leader_epochs = leader_epochs(topic.ends)
        self._marker = marker
        self._number = latest
        self._mode = mode
        self._cleared: set[int] = set()
        """Partitions in which no earlier transaction of this gateway is open: one of this session has ended there."""

    def run(self, stop: threading.Event) -> None:
        check_broker = partial(self._context.watch.read_id, stop)
        while not stop.is_set():
            self._context.wall_steps.check()
            self._process_reports(self._reader)
            if self._context.outbox.pop_returned():
                self._cursor = START
            if events := self._context.oversized.next_try(check_broker) or self._read(stop):
                self._send(events, stop)

    def _read(self, stop: threading.Event) -> Sequence[StoredEvent]:
        """Wait, up to IDLE_SECONDS_MAX, for new events after the cursor, and return them without the held ones."""
        if self._context.oversized.full:
            stop.wait(IDLE_SECONDS_MAX)
            return ()
        if not self._wait_for_new(IDLE_SECONDS_MAX):
            return ()
        events = self._read_new()
        sendable = self._context.oversized.cut(events)
        if events and not sendable:
            self._cursor = events[-1].position
        return sendable

    def close(self) -> None:
        super().close()
        close(self._reader, threading.Event())

    def _send(self, events: Sequence[StoredEvent], stop: threading.Event) -> None:
        """Run one transaction, and mark its events."""
        batch = self._fill(events, stop)
        while batch is not None and not batch.partitions.keys() <= self._cleared:
            self._clear(batch, stop)
            batch = self._fill(events, stop)
        if batch is None:
            return
        intent = self._intend(batch)
        self._transactional.commit(self._context.topic, intent.marker, stop)
        stable = await_stable(self._context, batch, stop)
        if stable is None:
            raise SessionError("the transaction is committed, and readers of the topic do not see it")
        committed = is_committed(self._context, intent, self._reader, stop)
        actual = self._context.watch.read_id(stop)
        if actual != self._topic.id:
            raise SessionError(f"the topic is {actual} now, and was {self._topic.id} before the first send")
        if not committed:  # it stayed open, and was aborted with a transaction of another agent with this gateway's id
            raise SessionError("the broker reported the transaction as committed, and its records are not in the topic")
        self._context.outbox.mark_forwarded(batch, (TRANSACTION_SETTLED, str(intent.marker.number)))
        self._leader_epochs = {**self._leader_epochs, **leader_epochs(stable)}
        self._marker = intent.marker
        self._mode.settled = intent.marker.number
        self._cursor = max(self._cursor, batch.last)
        if len(events) == 1 and self._context.oversized.accepted(batch.first):
            self._cursor = START
        self._context.link.report_delivery()
        self.marked += 1

    def _fill(self, events: Sequence[StoredEvent], stop: threading.Event) -> Batch | None:
        """Begin a transaction and send the events in it; where one is too large, abort it and return None."""
        in_flight = InFlightBatch(events[0].position, self._leader_epochs)
        self._transactional.begin()
        if not (self._produce(events, in_flight) and self._await_reports(events, in_flight, stop)):
            self._transactional.abort(stop)
            self._cleared.clear()
            return None
        ends = self._context.watch.ends(in_flight.partitions, stop)
        return in_flight.batch(self._topic.id, leader_epochs(ends))

    def _clear(self, batch: Batch, stop: threading.Event) -> None:
        """Abort the transaction, and with it any earlier one of this gateway that is still open in its partitions.

        If the coordinator has not carried out an abort in a partition, the records there share the outcome
        of the producer's next transaction, and must not be committed with it. Once readers can read past the records of
        this transaction, it was carried out.
        """
        self._transactional.abort(stop)
        if await_stable(self._context, batch, stop) is None:
            raise SessionError(HELD_BACK)
        self._cleared |= batch.partitions.keys()

    def _intend(self, batch: Batch) -> Intent:
        """Store the intent of the transaction that is about to be committed, and return it."""
        outbox = self._context.outbox
        self._number += 1
        marker = Marker(outbox.epoch(), self._number)
        self._mode.epochs.add(marker.epoch)
        intent = Intent(marker, self._marker, batch, tuple(outbox.labels(batch.first, batch.last)))
        outbox.set_fact(TRANSACTION_INTENT, str(intent))
        return intent

    def _produce(self, events: Sequence[StoredEvent], in_flight: InFlightBatch) -> bool:
        """Hand the events to the producer; return False where it has refused one for its size.

        Raise SessionError with the reason for which the transaction has failed.
        """
        self._count_for_cap(events)
        try:
            for event in events:
                if not self._hand_over(event, in_flight, self._errors.check):
                    self._context.oversized.refused(event, self._size(event))
                    return False
        except SessionError as error:
            # Once a report has failed the transaction, the client itself reports nothing but an "erroneous state".
            raise SessionError(self._transactional.explain_failure(self._context.topic, str(error))) from error
        return True

    def _await_reports(self, events: Sequence[StoredEvent], in_flight: InFlightBatch, stop: threading.Event) -> bool:
        """Wait until every record is reported; return False where the broker has refused one for its size.

        Raise SessionError where one has failed for another reason.
        """
        silence = Silence(self._context.clock, self._context.silence_ms)
        deadline: int | None = None
        while in_flight.unreported:
            serve(self._producer, REPORT_SECONDS)
            self._context.wall_steps.check()
            self._errors.check()
            if silence.lasts(in_flight.unreported):
                self._context.link.report_failure(UnreachableError(self._errors.text or str(silence)))
            if stop.is_set():
                deadline = deadline or self._context.clock.monotonic_ms() + STOP_MS_MAX
                if self._context.clock.monotonic_ms() > deadline:
                    raise SessionError("the agent stops")
        if in_flight.refused and len(events) == 1:
            self._context.oversized.refused(events[0], self._size(events[0]))
        elif in_flight.refused:
            self._context.oversized.suspect(in_flight.first, in_flight.last)
        elif in_flight.failure is not None:
            raise SessionError(self._transactional.explain_failure(self._context.topic, in_flight.failure))
        return not in_flight.refused
