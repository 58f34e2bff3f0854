"""What became of a transaction whose end nobody saw: the records themselves are asked, since the coordinator may err.

A broker that comes back may call a transaction committed without having ended it in the partitions (Kafka 4.3: "these
partitions are likely deleted already"). Its records then wait for the producer's next transaction there, and share its
fate. So nothing is marked before a reader of what is committed can see it, and what hangs is ended by us.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

from agent.forward.attempt import attempt
from agent.forward.client import describe
from agent.forward.error import SessionError, UnreachableError
from agent.forward.group import read_label
from agent.forward.mode import Way
from agent.forward.records import encode
from agent.forward.sending import hand_over
from agent.forward.topic import LogEnd
from agent.forward.transaction import Intent
from agent.store.port import Batch

STABLE_MS: Final = 25_000
"""How long a transaction of somebody else may hold back what is visible: its time limit, and the broker's next look."""
LOOK_SECONDS: Final = 0.02
SWEEP_SECONDS_MAX: Final = 12.0
HELD_BACK: Final = "a transaction stays open in the topic, and readers of it are held back"

_log = logging.getLogger(__name__)


def await_stable(way: Way, batch: Batch, stop: threading.Event) -> Mapping[int, LogEnd] | None:
    """Wait until readers of what is committed get past a batch's records, and return where these partitions end.

    None where a transaction stays open.

    Raises UnreachableError where a partition does not answer.
    """
    deadline = way.clock.monotonic() + STABLE_MS
    while True:
        stable = way.watch.ends(batch.partitions, stop, stable=True)
        if stable.keys() != batch.partitions.keys():
            raise UnreachableError("not all partitions have a leader")
        if all(stable[number].offset > offsets.highest for number, offsets in batch.partitions.items()):
            return stable
        if way.clock.monotonic() > deadline:
            return None
        stop.wait(LOOK_SECONDS)


def is_visible(way: Way, intent: Intent, producer: Producer, reader: Consumer, stop: threading.Event) -> bool:
    """Whether a reader of what is committed sees a transaction; raise SessionError where that cannot be told.

    The highest record in each partition speaks for the others: a transaction ends in a partition as a whole.
    """
    ends = way.watch.ends(intent.batch.partitions, stop)
    if any(number in ends and ends[number].offset <= span.highest for number, span in intent.batch.partitions.items()):
        return False  # a log that was cut
    if await_stable(way, intent.batch, stop) is None:
        _log.warning("delivery=exactly-once transaction=%s hangs=yes effect='ended, and sent again'", intent.marker)
        attempt(lambda: end_what_hangs(way, intent, producer), 2 * SWEEP_SECONDS_MAX, stop, "ending what hangs")
        if await_stable(way, intent.batch, stop) is None:
            raise SessionError(HELD_BACK)
    for number, span in intent.batch.partitions.items():
        found = read_label(reader, way.topic, number, span.highest, stop)
        if found is None:
            raise UnreachableError("no answer to what stands in the topic")
        if found.leader_epoch != span.leader_epoch or not intent.holds(way.gateway, found):
            return False
    return True


def end_what_hangs(way: Way, intent: Intent, producer: Producer) -> None:
    """Abort a transaction in each of the partitions: the broker ends with it what we had left open there."""
    events = way.outbox.read(intent.batch.first - 1, 1, 1)
    if not events:
        return
    record = encode(events[0], way.gateway)
    try:
        producer.begin_transaction()
        for number in intent.batch.partitions:
            hand_over(producer, way.topic, record, lambda *_: None, lambda: None, number)
        producer.flush(SWEEP_SECONDS_MAX)
        producer.abort_transaction(SWEEP_SECONDS_MAX)
    except KafkaException as error:
        raise SessionError(f"ending what hangs: {describe(error)}") from error
