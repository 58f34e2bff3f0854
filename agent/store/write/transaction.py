"""Transactions: each also carries the pending marks, counts of duplicates and wear, and ends or confirms a failure."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

from agent.clock import Clock
from agent.config.settings import StoreSettings
from agent.store.errors import FAILURES, DamagedStoreError, is_damage
from agent.store.facts import CLOCK_UNTRUSTED, WRITE_TRIAL
from agent.store.files import swap
from agent.store.files.use_mark import UseMark
from agent.store.fingerprints import fingerprint_rows
from agent.store.fingerprints.fingerprint_rows import NO_DUPLICATES, REPEATS_MAX, Duplicate, DuplicateTotals
from agent.store.memory import Memory
from agent.store.port import OutboxError
from agent.store.schema import database, gaps, tables
from agent.store.wear import Wear
from agent.store.write.capacity import Capacity
from agent.store.write.connection import CurrentEpoch, ServiceClock, WritingConnection

log = logging.getLogger(__name__)

BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Of the durations of commits, from the flush of a good disk to that of a card that is about to fail."""


class Transactions:
    """Runs transactions on the writing connection, on the writer's thread alone."""

    def __init__(
        self,
        path: Path,
        connect: database.Connect,
        settings: StoreSettings,
        clock: Clock,
        memory: Memory,
        report_failure: Callable[[BaseException], None],
        answered_duplicates: Sequence[Callable[[], int]] = (),
    ) -> None:
        """Create those of a store whose memory is loaded; `connection.start` begins service.

        Each of `answered_duplicates` returns how many a transport has recognised and answered itself since the start.
        """
        self.service = ServiceClock(clock, memory.service_ms)
        self.connection = WritingConnection(
            path, connect, memory, CurrentEpoch(clock, self.service), UseMark(path, clock.boot())
        )
        self.capacity = Capacity(path, settings, memory, self.connection.get)
        self.duplicates = DuplicateCounter(answered_duplicates)
        self.memory = memory
        self.damage = DamageReport(path, report_failure)
        self._failure = ""
        self.wear = Wear(memory.written)
        self.durations = CommitDurations()
        """Of the transactions that reached the disk."""

    @contextmanager
    def begin(self, *, write_back: bool = False) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, and where requested write the log back after it.

        Raise with nothing written, or UnknownOutcomeError.
        """
        self.capacity.check_log()
        changes, duplicates = self.memory.progress.pending(), self.duplicates.pending()
        start = time.monotonic()
        sql = self.connection.begin()
        try:
            if self.connection.is_uncertain:
                self._discard_uncertain(sql)
            yield sql
            self.wear.note(sql, self.service.now_ms())
            for change in changes:
                change(sql)
            if duplicates != NO_DUPLICATES:
                fingerprint_rows.add_duplicates(sql, duplicates)
        except BaseException as error:
            self.connection.roll_back(sql, error)
            raise
        self.connection.commit(sql)
        self.durations.add(time.monotonic() - start)
        if duplicates != NO_DUPLICATES:
            self.duplicates.written(duplicates)
        if changes:
            self.memory.progress.written(changes)
        self.connection.limit_log(at_once=write_back)
        if self._failure:
            log.warning("store=recovered")
            self._failure = ""

    def flush(self) -> None:
        if self.memory.progress.has_pending() or self.duplicates.has_pending():
            with self.begin():
                pass

    def note_wear(self) -> None:
        """Write the wear at the end, when no transaction follows that could carry it."""
        with self.begin() as sql:
            self.wear.note(sql, self.service.now_ms(), at_once=True)

    def trouble(self, *, trial: bool = False) -> str:
        """Return why no event can be stored now, empty where one can: after a failure once a write succeeds."""
        try:
            if self._failure or trial:
                with self.begin() as sql:
                    tables.write_fact(sql, WRITE_TRIAL, str(self.service.now_ms()))
            return self.capacity.refusal() if self.capacity.stays_full() else ""
        except FAILURES as error:
            self.report(error)
            return _cannot_write(error)

    def fail(self, error: Exception) -> str:
        """Note a failure, logged once until a transaction succeeds; return it as a reason for the sensors."""
        reason = _cannot_write(error)
        if reason != self._failure:
            log.error("store=failing reason=%r", reason)
            self._failure = reason
        self.report(error)
        return reason

    def report(self, error: Exception) -> None:
        """Refuse further transactions, and request a salvage, where an error means damage."""
        if is_damage(error):
            self.connection.lose_if_damaged(error)
            self.damage.report(error)

    def _discard_uncertain(self, sql: sqlite3.Connection) -> None:
        """Delete what a transaction of unknown outcome may have written."""
        tables.discard_from(sql, self.memory.end + 1)
        gaps.retract(sql, self.memory.end + 1)
        tables.write_fact(sql, CLOCK_UNTRUSTED, self.memory.untrusted_clock.text())


class DamageReport:
    """Marks the store as damaged, and reports that once; thread-safe."""

    def __init__(self, path: Path, report: Callable[[BaseException], None]) -> None:
        self._path = path
        self._report = report
        self._damaged = threading.Event()

    def is_damaged(self) -> bool:
        return self._damaged.is_set()

    def report(self, error: BaseException) -> None:
        """Request a salvage: the service has to close this store and open it again."""
        if not self._damaged.is_set():
            self._damaged.set()
            try:
                swap.suspect(self._path, str(error))
            except OSError as failure:
                log.error("store=damaged mark=failed reason=%r", str(failure))
            self._report(DamagedStoreError(str(error)))

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Report damage that is met within, and raise it as DamagedStoreError; any other failure as OutboxError."""
        try:
            yield
        except FAILURES as error:
            if not is_damage(error):
                raise OutboxError(f"the store fails: {error}") from error
            self.report(error)
            raise DamagedStoreError(str(error)) from error


class DuplicateCounter:
    """Counts all duplicates, and keeps the latest few one by one; runs on the writer's thread."""

    def __init__(self, answered: Sequence[Callable[[], int]]) -> None:
        self._answered = answered
        self._recognised = 0
        self._written = 0
        self._latest: deque[Duplicate] = deque(maxlen=REPEATS_MAX)

    def note(self, received: int, positions: list[int]) -> None:
        """Count duplicates of the events at these positions, for the next transaction."""
        self._recognised += len(positions)
        self._latest.extend([Duplicate(received, position) for position in positions])

    def pending(self) -> DuplicateTotals:
        """Return the counts that no transaction has written yet."""
        recognised = self._recognised
        for answered in self._answered:
            recognised += answered()
        return DuplicateTotals(recognised - self._written, tuple(self._latest))

    def has_pending(self) -> bool:
        """Whether there is something that no transaction has carried yet."""
        return self.pending() != NO_DUPLICATES

    def written(self, totals: DuplicateTotals) -> None:
        self._written += totals.count
        self._latest.clear()


class CommitDurations:
    """A histogram; one thread writes it, any thread may read it."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.total_seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.total_seconds += seconds

    @classmethod
    def total(cls, of_stores: Sequence[CommitDurations]) -> CommitDurations:
        """Return the durations of several stores, as of now."""
        total = cls()
        for one in of_stores:
            total._counts = [before + count for before, count in zip(total._counts, one._counts, strict=True)]
            total.total_seconds += one.total_seconds
        return total

    def cumulative(self) -> list[tuple[float, int]]:
        """Return for each upper bound, infinity last, how many commits took at most that long."""
        return list(zip((*BOUNDS_SECONDS, float("inf")), accumulate(tuple(self._counts)), strict=True))


def _cannot_write(error: Exception) -> str:
    return f"the store cannot write: {error}"
