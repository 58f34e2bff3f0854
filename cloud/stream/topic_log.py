"""Checks that the topic and its log are still those that the table has read.

A topic that is deleted and recreated has another id. A log whose end a broker has lost, and that has grown again, holds
other records at the same offsets; the leader epoch shows it, even with one broker. Spark's reader detects neither where
the new log is long enough (decision 41).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from cloud.committed import Committed
from cloud.errors import KafkaError, StopError
from cloud.stream import offsets
from cloud.table.commits import Commit, Offsets

if TYPE_CHECKING:  # others run without Spark
    from cloud.stream.kafka_admin import KafkaAdmin

ANSWER_SECONDS_MAX = 30
NO_ID = "A" * 22
"""The id of zeros, which clients return where a service has no topic ids."""
COMPACTED = (
    "Kafka compacts it, and keeps only the latest event of each device, read or not. Set cleanup.policy=delete on the "
    "topic, and start again"
)
RETRY_SECONDS = 0.5
"""The pause before a request is repeated because a former leader has answered it."""


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a partition, and its leader epoch (None where the broker does not return it)."""

    offset: int
    leader_epoch: int | None


class TopicClient(Protocol):
    """Requests about one topic; each raises KafkaError where Kafka does not answer."""

    def topic_id(self) -> str:
        """Return the topic's id; raise StopError where there is none."""

    def ends(self, partitions: Iterable[int], /) -> dict[int, LogEnd]:
        """Return the present ends of partitions."""

    def truncations(self, places: Mapping[int, LogEnd], /) -> dict[int, str]:
        """Return the cause for each partition whose log was truncated below the offset that was read."""

    def committed(self, group: str, partitions: Iterable[int], /) -> dict[int, Committed]:
        """Return the offsets that a group has committed; partitions without one are left out."""

    def commit(self, group: str, offsets: Offsets, metadata: Mapping[int, str], leader_epochs: Offsets, /) -> None:
        """Commit a group's offsets with metadata and leader epochs, by partition."""


class ReadLog:
    """Checks that the topic and its log are still those that were read."""

    if_truncated: ClassVar[str]
    """What the operator does."""
    if_replaced: ClassVar[str]

    def __init__(self, client: TopicClient, topic: str, patience_seconds: float = ANSWER_SECONDS_MAX) -> None:
        self._client = client
        self._topic = topic
        self._patience_seconds = patience_seconds
        self._epochs: Offsets = {}
        """The latest known leader epochs, by partition."""

    def check(self, read: Commit, ends: Offsets) -> Offsets:
        """Return the leader epochs under which the log contains all records of `read`, and reaches to `ends`.

        Raise StopError where it does not, since a reader that continued would skip records; raise KafkaError where no
        leader answers. The topic's id is requested last: if it is the same, all answers were about the same topic.
        """
        wanted = {partition: max(end, read.ends.get(partition, 0)) for partition, end in {**read.ends, **ends}.items()}
        try:
            now = self._ends(wanted, read)
            places = _under_new_leaders(read, now)
            truncated = {
                partition: f"offset {places[partition].offset}: {cause}"
                for partition, cause in self._client.truncations(places).items()
            }
        except KafkaError:
            self._check_id(read.topic_id)  # a topic recreated with fewer partitions has no leader for the others
            raise
        self._check_id(read.topic_id)
        short = {p: f"offset {end}: it ends at {now[p].offset}" for p, end in wanted.items() if now[p].offset < end}
        for partition, where in sorted({**short, **truncated}.items()):
            raise StopError(
                f"topic {self._topic}, partition {partition}: the log was truncated below {where}. Unread records "
                f"are, or will be, at these offsets. {self.if_truncated}"
            )
        return {p: end.leader_epoch for p, end in now.items() if end.leader_epoch is not None}

    def _ends(self, wanted: Offsets, read: Commit) -> dict[int, LogEnd]:
        """Return the ends of the partitions; raise KafkaError where only former leaders answer.

        A leader that is cut off from its successor answers with a log that is no longer valid.
        """
        known = self._remember(read.epochs)
        deadline = time.monotonic() + self._patience_seconds
        while former := _by_former_leaders(now := self._client.ends(wanted), wanted, known):
            self._check_id(read.topic_id)  # the leader epochs of a recreated topic begin again
            if time.monotonic() >= deadline:
                raise KafkaError(f"topic {self._topic}: only former leaders answer: {former}, known epochs: {known}")
            time.sleep(RETRY_SECONDS)
        self._remember({p: end.leader_epoch for p, end in now.items() if end.leader_epoch is not None})
        return now

    def _remember(self, epochs: Offsets) -> Offsets:
        later = {p: max(epoch, self._epochs.get(p, epoch)) for p, epoch in epochs.items()}
        self._epochs = {**self._epochs, **later}
        return self._epochs

    def _check_id(self, known: str) -> None:
        if (now := self._client.topic_id()) != known:
            raise StopError(f"{offsets.another_topic(self._topic, known, now)}. {self.if_replaced}")


class TopicLog(ReadLog):
    """Checks the topic between a batch's plan and its commit, and again before its receipts."""

    if_truncated = (
        "Find out why; then start with a new checkpoint and --read-again; events in the table are not written again"
    )
    if_replaced = offsets.WITH_A_NEW_TABLE

    def __init__(self, admin: KafkaAdmin, topic: str, patience_seconds: float = ANSWER_SECONDS_MAX) -> None:
        super().__init__(admin, topic, patience_seconds)
        self._admin = admin
        self._has_append_times = False

    def check_settings(self) -> None:
        """Raise StopError where Kafka compacts the topic, or records do not have the broker's time of their append.

        A service may accept LogAppendTime without applying it, so that the records alone show it; a found one is
        remembered. What compaction has removed, nothing shows: transactions leave gaps in the offsets, too.
        """
        if self._admin.is_compacted():
            raise StopError(
                f"topic {self._topic}: {COMPACTED}; what is lost already, an audit names, and gateways that still have "
                "it send it by `oncegate replay`"
            )
        if self._has_append_times:
            return
        found = self._admin.has_append_times()
        if found is False:
            raise StopError(
                f"topic {self._topic}: its latest records have the producers' times, not those of their append "
                "(LogAppendTime), with which clocks are compared. Set message.timestamp.type=LogAppendTime on the "
                "topic; the job runs once a record has arrived after that. If it is set already, this Kafka service "
                "ignores it: use a service of docs/kafka.md"
            )
        self._has_append_times = found is True

    def latest_append(self) -> int:
        """Return the latest append time of a record, in milliseconds; raise KafkaError where no leader answers."""
        return self._admin.latest_append()


def _by_former_leaders(now: Mapping[int, LogEnd], wanted: Offsets, known: Offsets) -> dict[int, LogEnd]:
    """Return the answers of an earlier epoch than the known one, or of the same epoch with a shorter log."""
    return {
        partition: end
        for partition, end in now.items()
        if end.leader_epoch is not None
        and partition in known
        and (end.leader_epoch, end.offset) < (known[partition], wanted[partition])
    }


def _under_new_leaders(read: Commit, now: Mapping[int, LogEnd]) -> dict[int, LogEnd]:
    """Return the ends of the read offsets, in partitions with a new leader since then."""
    return {
        partition: LogEnd(read.ends[partition], epoch)
        for partition, epoch in read.epochs.items()
        if now[partition].leader_epoch != epoch
    }
