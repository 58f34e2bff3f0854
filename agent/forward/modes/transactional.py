"""Calls to a transactional producer, each with a deadline, and the outcome of a transaction whose end was not observed.

The outcome is determined from the records, since the coordinator may err (decision 18). A restarted broker may report a
transaction as committed without having ended it in the partitions (Kafka 4.3: "these partitions are likely deleted
already"). Its records then share the outcome of the next transaction there, that of another agent with this id, too.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from agent.forward.errors import SessionError, UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import LastError, describe
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import LogEnd
from agent.forward.modes.session import BATCH_BYTES_MAX, SessionContext, hand_over
from agent.forward.modes.transaction import Intent, Marker
from agent.forward.receipts.group_offsets import read_labels
from agent.store.port import Batch, Outbox, StoredEvent

STEP_SECONDS_MAX: Final = 12.0
"""How long one call may take before its producer is abandoned."""
END_SHARE: Final = 0.9
"""How much of the client's time limit of a request the end of a transaction may take."""
EXPLAIN_SECONDS: Final = 1.0
"""How long the client may take to explain why a transaction has failed."""
MARKER_PARTITION: Final = 0


def end_seconds_max(config: Mapping[str, Any]) -> float:
    """Return how long the end of a transaction may take before its producer is abandoned.

    A client that closes a connection after its time limit sends the request again, on another one, and what it had
    written to the first may still arrive. The request does not name its transaction: it would end the next one of this
    producer, and commit a part of it. Of a producer that was abandoned, the next one's registration refuses it.
    """
    return min(STEP_SECONDS_MAX, END_SHARE * int(config["socket.timeout.ms"]) / 1000)


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """A producer that holds the gateway's transactional id."""

    producer: Producer
    errors: LastError
    group: Any
    """The group's metadata, an opaque object of the client."""
    end_seconds: float
    """How long the end of a transaction may take."""

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise SessionError(describe(error)) from error

    def commit(self, topic: str, marker: Marker, stop: threading.Event) -> None:
        """Commit, with the marker; where it raises, the next session determines the outcome from the records."""
        offset = TopicPartition(topic, MARKER_PARTITION, marker.number, str(marker))

        def commit() -> None:
            self.producer.send_offsets_to_transaction([offset], self.group, self.end_seconds)
            self.producer.commit_transaction(self.end_seconds)

        step(commit, "the transaction's commit", self.errors, stop, self.end_seconds)

    def abort(self, stop: threading.Event) -> None:
        """Abort the open transaction: no reader of committed records receives it."""
        abort = partial(self.producer.abort_transaction, self.end_seconds)
        step(abort, "the transaction's end", self.errors, stop, self.end_seconds)

    def explain_failure(self, topic: str, failure: str) -> str:
        """Return why a transaction has failed: a record's own report may only state that it was purged."""
        try:
            self.producer.send_offsets_to_transaction(
                [TopicPartition(topic, MARKER_PARTITION, 0)], self.group, EXPLAIN_SECONDS
            )
        except KafkaException as error:
            return describe(error)
        return failure


def step(call: Any, what: str, errors: LastError, stop: threading.Event, seconds_max: float = STEP_SECONDS_MAX) -> Any:
    """Call with a deadline; raise SessionError where the call fails, UnreachableError where it hangs."""
    try:
        return attempt(call, seconds_max, stop, what)
    except UnreachableError as hanging:
        raise UnreachableError(errors.text or str(hanging)) from hanging
    except KafkaException as error:
        raise SessionError(f"{what}: {describe(error)}") from error


STABLE_MS: Final = 25_000
"""How long another producer's transaction may hold back readers: its time limit, and the broker's next check."""
RETRY_SECONDS: Final = 0.02
HELD_BACK: Final = "a transaction stays open in the topic, and readers of it are held back"

_log = logging.getLogger(__name__)


def await_stable(context: SessionContext, batch: Batch, stop: threading.Event) -> Mapping[int, LogEnd] | None:
    """Wait until readers of committed records get past a batch, and return where its partitions end for them.

    They get past aborted records, too: `is_committed` distinguishes them.
    Return None where a transaction stays open. Raise UnreachableError where a partition does not answer.
    """
    deadline = context.clock.monotonic_ms() + STABLE_MS
    while True:
        stable = context.watch.ends(batch.partitions, stop, stable=True)
        if stable.keys() != batch.partitions.keys():
            raise UnreachableError("not all partitions have a leader")
        if all(stable[number].offset > offsets.highest for number, offsets in batch.partitions.items()):
            return stable
        if context.clock.monotonic_ms() > deadline:
            return None
        stop.wait(RETRY_SECONDS)


def is_visible(
    context: SessionContext,
    intent: Intent,
    transactional: TransactionalProducer,
    reader: Consumer,
    stop: threading.Event,
) -> bool:
    """Whether a transaction is visible to readers of committed records; raise SessionError where that is unknown."""
    ends = context.watch.ends(intent.batch.partitions, stop)
    if any(number in ends and ends[number].offset <= span.highest for number, span in intent.batch.partitions.items()):
        return False  # the log was truncated
    if await_stable(context, intent.batch, stop) is None:
        _log.warning("delivery=exactly-once transaction=%s hangs=yes effect='aborted, and sent again'", intent.marker)
        abort_hanging_transaction(context, intent, transactional, stop)
        if await_stable(context, intent.batch, stop) is None:
            raise SessionError(HELD_BACK)
    return is_committed(context, intent, reader, stop)


def is_committed(context: SessionContext, intent: Intent, reader: Consumer, stop: threading.Event) -> bool:
    """Whether readers of committed records receive a transaction; they can already read past it.

    The highest record in each partition is sufficient: a transaction ends in a partition as a whole.
    Raise UnreachableError where a partition does not answer.
    """
    spans = intent.batch.partitions
    labels = read_labels(reader, context.topic, {number: span.highest for number, span in spans.items()}, stop)
    if labels.keys() != spans.keys():
        raise UnreachableError("no answer when reading the topic")
    return all(
        label.proves(spans[number].leader_epoch, context.gateway, intent.labels) for number, label in labels.items()
    )


def abort_hanging_transaction(
    context: SessionContext, intent: Intent, transactional: TransactionalProducer, stop: threading.Event
) -> None:
    """Run and abort a transaction in all its partitions, by which the broker ends the hanging one."""
    events = context.outbox.read(intent.batch.first - 1, 1, 1)
    if not events:
        return
    record, producer = encode(events[0], context.gateway, context.sign), transactional.producer

    def send() -> None:
        for number in intent.batch.partitions:
            hand_over(producer, context.topic, record, lambda *_: None, lambda: None, number)
        producer.flush(STEP_SECONDS_MAX)

    transactional.begin()
    step(send, "a record of an aborted transaction", transactional.errors, stop)
    transactional.abort(stop)


def still_new(outbox: Outbox, intent: Intent) -> Iterator[Sequence[StoredEvent]]:
    """Yield an intent's events that are still new, in runs.

    Events with other labels, which a salvage may have left at its positions, are not among them. Raise SessionError
    where some cannot be read now: none may be taken for marked.
    """
    outbox.pop_returned()  # the session begins with the lowest new event, and `wait` is to report only new ones
    after = intent.batch.first - 1
    while after < intent.batch.last and outbox.wait(after, 0):
        events = outbox.read(after, intent.batch.last - after, BATCH_BYTES_MAX)
        if not events:
            raise SessionError(f"transaction {intent.marker}: its events cannot be read now")
        for is_sent, run in groupby(events, lambda event: intent.holds(event.label)):
            if is_sent:
                yield list(run)
        after = events[-1].position
