"""Whether the topic and its log are still those that the table has read.

A topic that is deleted and recreated has another id. A log that a broker has lost the end of, and that has grown again,
holds other records at the same offsets; the number of the leader's election (leader epoch) tells, on one broker too.
Spark's reader notices neither where the new log is long enough.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from cloud.errors import KafkaError, StopError
from cloud.stream import offsets
from cloud.stream.kafka_admin import ANSWER_SECONDS_MAX, KafkaAdmin, LogEnd
from cloud.table.commits import Commit, Offsets

RETRY_SECONDS = 0.5
"""Between two questions, of which the first was answered by a leader that is none any more."""


class TopicLog:
    """Looks at the topic between a batch's plan and its commit, and again before its receipts."""

    def __init__(self, admin: KafkaAdmin, topic: str, patience_seconds: float = ANSWER_SECONDS_MAX) -> None:
        self._admin = admin
        self._topic = topic
        self._patience_seconds = patience_seconds
        self._epochs: Offsets = {}
        """The latest leader epochs known."""

    def check(self, read: Commit, ends: Offsets) -> Offsets:
        """Return the leader epochs under which the log holds what `read` has read, and goes up to `ends`.

        Raise StopError where it does not: whoever goes on reading skips records. Raise KafkaError where nobody answers.
        The topic's id is asked last: if it is the same, all answers were about the same topic.
        """
        wanted = {partition: max(end, read.ends.get(partition, 0)) for partition, end in {**read.ends, **ends}.items()}
        try:
            now = self._ends(wanted, read)
            places = _led_otherwise(read, now)
            truncated = {
                partition: f"offset {places[partition].offset}: {cause}"
                for partition, cause in self._admin.truncations(places).items()
            }
        except KafkaError:
            self._check_id(read.topic_id)  # of a topic recreated with fewer partitions nobody answers for the others
            raise
        self._check_id(read.topic_id)
        short = {p: f"offset {end}: it ends at {now[p].offset}" for p, end in wanted.items() if now[p].offset < end}
        for partition, where in sorted({**short, **truncated}.items()):
            raise StopError(
                f"topic {self._topic}, partition {partition}: the log was truncated below {where}. Other records stand "
                "there now, or soon will, and no table has them. Find out why; then start with a new checkpoint and "
                "--read-again: what the table has stays once"
            )
        return {p: end.leader_epoch for p, end in now.items() if end.leader_epoch is not None}

    def latest_append(self) -> int:
        """Return the latest time at which a broker has appended a record; raise KafkaError where nobody answers."""
        return self._admin.latest_append()

    def _ends(self, wanted: Offsets, read: Commit) -> dict[int, LogEnd]:
        """Return where the partitions end; raise KafkaError where only leaders of the past answer.

        One that was cut off and does not know it yet tells of a log that is no longer the partition's.
        """
        known = self._remember(read.epochs)
        deadline = time.monotonic() + self._patience_seconds
        while past := _led_in_the_past(now := self._admin.ends(wanted), wanted, known):
            self._check_id(read.topic_id)  # a topic made anew counts its elections anew
            if time.monotonic() >= deadline:
                raise KafkaError(f"topic {self._topic}: only leaders of the past answer: {past}, known: {known}")
            time.sleep(RETRY_SECONDS)
        self._remember({p: end.leader_epoch for p, end in now.items() if end.leader_epoch is not None})
        return now

    def _remember(self, epochs: Offsets) -> Offsets:
        later = {p: max(epoch, self._epochs.get(p, epoch)) for p, epoch in epochs.items()}
        self._epochs = {**self._epochs, **later}
        return self._epochs

    def _check_id(self, known: str) -> None:
        if (now := self._admin.topic_id()) != known:
            raise StopError(offsets.another_topic(self._topic, known, now))


def _led_in_the_past(now: Mapping[int, LogEnd], wanted: Offsets, known: Offsets) -> dict[int, LogEnd]:
    """Return the answers of an earlier epoch than is known, or of the same with a log that has become shorter."""
    return {
        partition: end
        for partition, end in now.items()
        if end.leader_epoch is not None
        and partition in known
        and (end.leader_epoch, end.offset) < (known[partition], wanted[partition])
    }


def _led_otherwise(read: Commit, now: Mapping[int, LogEnd]) -> dict[int, LogEnd]:
    """Return the ends of what was read in partitions whose leader was elected since."""
    return {
        partition: LogEnd(read.ends[partition], epoch)
        for partition, epoch in read.epochs.items()
        if now[partition].leader_epoch != epoch
    }
