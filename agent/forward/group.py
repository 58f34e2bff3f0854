"""A look at the processing group from outside: its offsets, the log's ends, the topic."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ lacks the latter

from agent.forward.client import REQUEST_SECONDS_MAX, LastError, code_of, wait_for
from agent.forward.decision import PartitionView, View
from agent.forward.error import UnreachableError
from agent.forward.topic import TopicWatch
from contract import receipt

ASK_SECONDS = 2.0
"""How long one question for the group's offsets takes at most, so that the agent's end need not wait for it."""

_RECEIPT = re.compile(rb"oncegate:[^:]+:(?:0|[1-9][0-9]*)(?::[0-9A-Za-z-]+)?")


class WithMetadata(Protocol):
    """A committed offset, as far as its metadata goes."""

    @property
    def metadata(self) -> str | None:
        """Give the metadata; raise UnicodeDecodeError where it is no text."""


class Group:
    """Reads what the group has committed, never as a member of it.

    The consumer is in no group as long as it subscribes to nothing. AdminClient could be asked, too, but librdkafka
    dereferences NULL in it while the group's coordinator is being elected (librdkafka issue 5040).
    """

    def __init__(self, admin: AdminClient, consumer: Consumer, topic: str, last_error: LastError) -> None:
        self._admin = admin
        self._consumer = consumer
        self._topic = topic
        self._watch = TopicWatch(admin, topic, last_error)

    def look(self, partitions: Iterable[int], stop: threading.Event) -> View:
        """Look at some partitions; raise UnreachableError or TopicMissingError.

        The order matters. An id that is still the batch's after the offsets were read proves that these are the
        same topic's: ids are never used again.
        """
        wanted = sorted(partitions)
        try:
            committed = self._committed(wanted, stop) if wanted else {}
            ends = self._log_ends(wanted, stop) if wanted else {}
        except KafkaException as error:
            raise self._watch.explain(error) from error
        topic_id = self._watch.read(stop)
        return View(topic_id, {partition: _view(committed.get(partition), ends.get(partition)) for partition in wanted})

    def _committed(self, partitions: list[int], stop: threading.Event) -> dict[int, TopicPartition]:
        """Read the group's offsets; without those that a transaction may still take back."""
        question = [TopicPartition(self._topic, number) for number in partitions]
        deadline = time.monotonic() + REQUEST_SECONDS_MAX
        while not stop.is_set():
            try:
                answer = self._consumer.committed(question, timeout=ASK_SECONDS)
            except KafkaException as error:
                if code_of(error) != KafkaError._TIMED_OUT or time.monotonic() > deadline:
                    raise
            else:
                return {offset.partition: offset for offset in answer if offset.error is None}
        raise UnreachableError("the agent stops")

    def _log_ends(self, partitions: list[int], stop: threading.Event) -> dict[int, int]:
        """Read where each partition ends; one that does not answer (it may have no leader now) is left out."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the one part of it without types
        question = {TopicPartition(self._topic, number): latest for number in partitions}
        futures = self._admin.list_offsets(question, request_timeout=REQUEST_SECONDS_MAX)
        ends: dict[int, int] = {}
        for partition, future in futures.items():
            try:
                ends[partition.partition] = wait_for(future, stop).offset
            except KafkaException:
                continue
        return ends


def _view(committed: TopicPartition | None, log_end: int | None) -> PartitionView:
    if committed is None or committed.offset < 0:
        return PartitionView(log_end=log_end)
    return PartitionView(committed.offset, receipt.parse(read_metadata(committed)), log_end)


def read_metadata(committed: WithMetadata) -> str | None:
    """Read the metadata, without what the client reads beyond its end.

    librdkafka copies it without its closing NUL, and the client takes it for a C string (2.16). What is too much may
    lengthen `first` by digits, unless that is 0: then batches are sent again. No receipt becomes true by it.
    """
    try:
        raw = (committed.metadata or "").encode()
    except UnicodeDecodeError as error:
        raw = error.object
    found = _RECEIPT.match(raw)
    return None if found is None else found[0].decode()
