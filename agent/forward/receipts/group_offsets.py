"""Reads the processing group's offsets, the log's ends and the topic, without joining the group."""

import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.forward.errors import UnreachableError
from agent.forward.kafka.attempt import attempt
from agent.forward.kafka.client import (
    MOVING_CODES,
    OPENING_SECONDS_MAX,
    REQUEST_SECONDS_MAX,
    STOP_POLL_SECONDS,
    LastError,
    code_of,
    raw_metadata,
)
from agent.forward.kafka.topic import LogEnd, TopicWatch
from agent.forward.receipts.rules import PartitionView, View
from agent.forward.receipts.truncation import RecordLabel
from contract.receipt import Receipt, parse
from contract.record import STATEMENT, read_stated_label

RETRY_SECONDS: Final = 0.02
"""Time between two polls for a record."""
REQUEST_SECONDS = 5.0
"""Time limit of one request for the group's offsets: a later answer is lost."""

NO_LABEL: Final = RecordLabel("", "", 0)
"""The label of an offset without a gateway's record."""
_NOT_THERE: Final = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._NO_OFFSET,
)
_RETRY_CODES: Final = (KafkaError._TIMED_OUT, *MOVING_CODES)
"""The coordinator is being found, too, as for the first group of a new cluster."""


class GroupOffsets:
    """Reads the group's committed offsets, never as a member of it.

    A consumer joins its group only when it subscribes. AdminClient is not used (decision 3): librdkafka dereferences
    NULL in it while the group's coordinator is being elected (librdkafka issue 5040).
    """

    def __init__(self, admin: AdminClient, consumer: Consumer, topic: str, last_error: LastError) -> None:
        self._consumer = consumer
        self._topic = topic
        self._watch = TopicWatch(admin, topic, last_error)
        self._has_answered = False

    def read_view(self, partitions: Iterable[int], stop: threading.Event) -> View:
        """Return the view of some partitions; raise UnreachableError or TopicMissingError.

        The id is read after the offsets: where it is still the batch's, the offsets are of that topic, since ids are
        never reused.
        """
        wanted = sorted(partitions)
        try:
            committed = self._committed(wanted, stop) if wanted else {}
            ends = self._watch.ends(wanted, stop)
        except KafkaException as error:
            raise self._watch.explain(error) from error
        topic_id = self._watch.read_id(stop)
        return View(topic_id, {partition: _view(committed.get(partition), ends.get(partition)) for partition in wanted})

    def _committed(self, partitions: list[int], stop: threading.Event) -> dict[int, TopicPartition]:
        """Return the group's offsets, without those of an open transaction."""
        question = [TopicPartition(self._topic, number) for number in partitions]
        seconds_max = REQUEST_SECONDS_MAX if self._has_answered else OPENING_SECONDS_MAX
        deadline = time.monotonic() + seconds_max
        while not stop.is_set():
            try:
                ask = partial(self._consumer.committed, question, timeout=REQUEST_SECONDS)
                answer = attempt(ask, seconds_max, stop, "the group's offsets")
            except KafkaException as error:
                if code_of(error) not in _RETRY_CODES or time.monotonic() > deadline:
                    raise
                stop.wait(STOP_POLL_SECONDS)
            else:
                self._has_answered = True
                return {offset.partition: offset for offset in answer if offset.error is None}
        raise UnreachableError("the agent stops")

    def read_label(self, partition: int, offset: int, stop: threading.Event) -> RecordLabel | None:
        """Return the label of the record at an offset, NO_LABEL where there is none, None where no broker answers."""
        return read_labels(self._consumer, self._topic, {partition: offset}, stop).get(partition)


def read_labels(
    consumer: Consumer, topic: str, offsets: Mapping[int, int], stop: threading.Event
) -> Mapping[int, RecordLabel]:
    """Return the label of the record at an offset of each partition, NO_LABEL where there is none.

    A partition that does not answer is left out, and one whose log ends at or below the offset for readers: the log of
    a leader that was just elected does so for a moment, until its followers have reported what they have.
    """
    labels: dict[int, RecordLabel] = {}
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])
    deadline = time.monotonic() + REQUEST_SECONDS_MAX
    try:
        while labels.keys() != offsets.keys() and time.monotonic() < deadline and not stop.is_set():
            message = consumer.poll(0)  # never longer, since the client's waits may not end (`wall_steps`)
            if message is None:
                stop.wait(RETRY_SECONDS)
                continue
            partition, error = message.partition(), message.error()
            if partition is None or partition not in offsets or partition in labels:
                continue  # an error of the client as a whole, or a record behind the one that was read
            if error is None:
                labels[partition] = _label(message) if message.offset() == offsets[partition] else NO_LABEL
            elif error.code() in _NOT_THERE or _is_end_beyond(message, offsets[partition]):
                labels[partition] = NO_LABEL
        return labels
    finally:
        consumer.unassign()


def _is_end_beyond(message: Message, offset: int) -> bool:
    """Whether an error states that the log ends beyond an offset, without a record at it."""
    error, end = message.error(), message.offset()
    return error is not None and error.code() == KafkaError._PARTITION_EOF and end is not None and end > offset


def _label(message: Message) -> RecordLabel:
    """Return a record's label, with the leader epoch of its record batch; NO_LABEL where it has none."""
    try:
        headers = dict(message.headers() or ())
        gateway, label = read_stated_label(cast("bytes", headers[STATEMENT]))
        return RecordLabel(gateway, label.epoch, label.sequence, message.leader_epoch())
    except (KeyError, ValueError, AttributeError, SystemError):  # the last by the client, for a name that is no UTF-8
        return NO_LABEL


def _view(committed: TopicPartition | None, end: LogEnd | None) -> PartitionView:
    log_end, leader_epoch = (None, None) if end is None else (end.offset, end.leader_epoch)
    if committed is None or committed.offset < 0:
        return PartitionView(log_end=log_end, leader_epoch=leader_epoch)
    return PartitionView(committed.offset, read_receipt(committed), log_end, leader_epoch, committed.leader_epoch)


def read_receipt(committed: TopicPartition) -> Receipt | None:
    """Return the receipt beside an offset, ignoring bytes beyond the metadata's end."""
    return parse(raw_metadata(committed).decode(errors="replace"))
