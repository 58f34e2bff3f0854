"""Receipts: the end offsets of the table's last commit, committed as the offsets of a Kafka group.

The topic is checked before each commit, since it may have been recreated or truncated while a batch was read.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from cloud.committed import Committed, objection
from cloud.errors import FlushError, KafkaError, SinkError
from cloud.stream.topic_log import ReadLog, TopicClient
from cloud.table.commits import Commit
from contract.receipt import Receipt, parse

REPEAT_SECONDS = 3600.0
"""Repeated, since Kafka expires a group's offsets after days and an idle topic must not look unread."""
RETRY_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Receipts:
    """Commits the receipts of the table's last commit to Kafka, until Kafka has them and at least hourly."""

    _admin: TopicClient
    _log: ReadLog
    _group: str
    _succeeds: str | None
    _check: Callable[[], None] = lambda: None
    """Raises StopError where the table is no longer the one that made the commit, SinkError where none answers."""
    _flush: Callable[[], None] = lambda: None
    """Brings to disk what is receipted, where the table's writer does not."""
    _lock: threading.Lock = field(init=False)
    _commit: Commit | None = None
    _due_at: float = 0.0
    _failing_since: int | None = None
    """In milliseconds since 1970 UTC; None where no effects fail."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def commit(self, commit: Commit) -> bool:
        """Commit the receipts of a commit of the table; `repeat` tries again after a failure, which is logged.

        Return whether Kafka has them. Raise StopError where the topic is no longer the one that the table has read.
        """
        with self._lock:
            self._commit, self._failing_since = commit, None
            return self._send(commit)

    def repeat(self) -> None:
        """Commit the latest receipts again where that is due, and the table is still the same."""
        with self._lock:
            if self._commit is not None and time.monotonic() >= self._due_at:
                self._send(self._commit, self._check)

    def note_failing(self, commit: Commit) -> None:
        """Repeat the receipts from before a commit, with the note that its effects fail; no offset moves.

        A partition without a receipt gets one at the offset from which the table has read it, which covers nothing.
        """
        with self._lock:
            try:
                self._check()
                self._log.check(commit, {})
                self._repeat_noted(commit)
            except (KafkaError, SinkError) as error:
                logger.warning("batch=%d stage=receipt-note error=%r", commit.batch, str(error))

    def _repeat_noted(self, commit: Commit) -> None:
        begin = {
            partition: Committed(
                first, commit.epochs.get(partition), str(Receipt(commit.table, first, commit.topic_id, self._succeeds))
            )
            for partition, first in commit.first.items()
        }
        given = {**begin, **self._admin.committed(self._group, begin)}
        own = {
            partition: receipt
            for partition, place in given.items()
            if objection(place, commit.table, commit.topic_id) is None and (receipt := parse(place.metadata))
        }
        noted = [receipt.failing_since for receipt in own.values() if receipt.failing_since is not None]
        since = self._failing_since = self._failing_since or min(noted, default=int(time.time() * 1000))
        if len(noted) < len(own):
            metadata = {partition: str(replace(receipt, failing_since=since)) for partition, receipt in own.items()}
            epochs = {partition: given[partition].leader_epoch or 0 for partition in own}
            self._admin.commit(self._group, {partition: given[partition].offset for partition in own}, metadata, epochs)

    def _send(self, commit: Commit, check: Callable[[], None] = lambda: None) -> bool:
        if not commit.ends:
            return False
        try:
            self._flush()  # nothing is receipted before it is on disk
        except FlushError:
            self._commit = None  # the job ends; until then a repeated flush would succeed although data is lost
            raise
        named = partial(Receipt, commit.table, topic_id=commit.topic_id, succeeds=self._succeeds)
        metadata = {p: str(named(commit.first[p], failing_since=self._failing_since)) for p in commit.ends}
        try:
            check()
            self._log.check(commit, {})
            self._admin.commit(self._group, commit.ends, metadata, commit.epochs)
        except (KafkaError, SinkError) as error:
            self._due_at = time.monotonic() + RETRY_SECONDS
            logger.warning("batch=%d stage=receipt retry_seconds=%g error=%r", commit.batch, RETRY_SECONDS, str(error))
            return False
        self._due_at = time.monotonic() + REPEAT_SECONDS
        logger.info("batch=%d stage=receipt offsets=%d", commit.batch, sum(commit.ends.values()))
        return True
