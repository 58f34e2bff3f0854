"""Determines the outcome of a transaction whose end was not observed: from the records, since the coordinator may err.

A restarted broker may report a transaction as committed without having ended it in the partitions (Kafka 4.3:
"these partitions are likely deleted already"). Its records then wait for the producer's next transaction there, and
share its outcome: that of another agent with this gateway's id, too. So events are marked only once a reader of
committed records has received them, and a hanging transaction is aborted here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from confluent_kafka import Consumer

from agent.forward.delivery.produce import hand_over
from agent.forward.delivery.session import BATCH_BYTES_MAX, SessionContext
from agent.forward.delivery.transaction import Intent
from agent.forward.delivery.transactional import STEP_SECONDS_MAX, TransactionalProducer, step
from agent.forward.errors import SessionError, UnreachableError
from agent.forward.kafka.record import encode
from agent.forward.kafka.topic import LogEnd
from agent.forward.receipts.group_offsets import read_labels
from agent.store.port import Batch, Outbox, StoredEvent

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
    """Whether readers of committed records, which get past a transaction, receive it.

    The highest record in each partition is sufficient: a transaction ends in a partition as a whole.
    Raise UnreachableError where a partition does not answer.
    """
    spans = intent.batch.partitions
    labels = read_labels(reader, context.topic, {number: span.highest for number, span in spans.items()}, stop)
    if labels.keys() != spans.keys():
        raise UnreachableError("no answer when reading the topic")
    return all(
        label.leader_epoch == spans[number].leader_epoch and label.is_in(context.gateway, intent.labels)
        for number, label in labels.items()
    )


def abort_hanging_transaction(
    context: SessionContext, intent: Intent, transactional: TransactionalProducer, stop: threading.Event
) -> None:
    """Run and abort a transaction in each of the partitions: the broker ends with it the one left open there."""
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
    """Yield an intent's events that are new, in runs, between which events have been given up since.

    Events with other labels, which a salvage may have left at its positions, are not among them. Raise SessionError
    where some cannot be read now: none may be taken for marked.
    """
    outbox.take_returned()  # the session begins with the lowest new event, and `wait` is to report only new ones
    after = intent.batch.first - 1
    while after < intent.batch.last and outbox.wait(after, 0):
        events = outbox.read(after, intent.batch.last - after, BATCH_BYTES_MAX)
        if not events:
            raise SessionError(f"transaction {intent.marker}: its events cannot be read now")
        for is_sent, run in groupby(events, lambda event: intent.holds(event.label)):
            if is_sent:
                yield list(run)
        after = events[-1].position
