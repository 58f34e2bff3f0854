"""Transactions: each also carries the pending marks, counts of duplicates and wear, and ends or confirms a failure."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence

from agent.store.errors import FAILURES, is_damage
from agent.store.facts import CLOCK_UNTRUSTED, WRITE_TRIAL
from agent.store.fingerprints import fingerprint_rows
from agent.store.memory import Memory
from agent.store.progress import Change
from agent.store.schema import gaps, tables
from agent.store.wear import Wear
from agent.store.write.capacity import Capacity
from agent.store.write.commit_durations import CommitDurations
from agent.store.write.connection import Write, WritingConnection
from agent.store.write.duplicate_counter import DuplicateCounter
from agent.store.write.service_clock import ServiceClock

log = logging.getLogger(__name__)


class Transactions:
    """Runs transactions on the writing connection, on the writer's thread alone."""

    def __init__(
        self,
        connection: WritingConnection,
        memory: Memory,
        service: ServiceClock,
        capacity: Capacity,
        duplicates: DuplicateCounter,
        report_damage: Callable[[BaseException], None],
    ) -> None:
        self._connection = connection
        self._memory = memory
        self._service = service
        self._capacity = capacity
        self._duplicates = duplicates
        self._report_damage = report_damage
        self._failure = ""
        self.wear = Wear(memory.written)
        self.durations = CommitDurations()
        """Of the transactions that reached the disk."""

    def run(self, write: Write, *, write_back: bool = False) -> None:
        """Run one transaction, and where requested write the log back after it; raise with nothing written."""
        self._capacity.check_log()
        changes = self._memory.progress.pending()
        duplicates = self._duplicates.pending()
        start = time.monotonic()
        self._connection.transact(lambda connection: self._carry(connection, write, changes, duplicates))
        self.durations.add(time.monotonic() - start)
        self._duplicates.written(duplicates)
        self._memory.progress.written(changes)
        self._connection.limit_log(at_once=write_back)
        if self._failure:
            log.warning("store=recovered")
            self._failure = ""

    def flush(self) -> None:
        """Write the pending changes now."""
        if self.has_pending():
            self.run(lambda connection: None)

    def has_pending(self) -> bool:
        """Whether marks or counts of duplicates wait for a transaction."""
        return self._memory.progress.has_pending() or self._duplicates.has_pending()

    def note_wear(self) -> None:
        """Write the wear at the end, when no transaction follows that could carry it."""
        self.run(lambda connection: self.wear.note(connection, self._service.now_ms(), at_once=True))

    def trouble(self, *, trial: bool = False) -> str:
        """Return why no event can be stored now, empty where one can: after a failure once a write succeeds."""
        try:
            if self._failure or trial:
                moment = str(self._service.now_ms())
                self.run(lambda connection: tables.write_fact(connection, WRITE_TRIAL, moment))
            return self._capacity.refusal() if self._capacity.stays_full() else ""
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
            self._connection.lose_if_damaged(error)
            self._report_damage(error)

    def _carry(
        self,
        connection: sqlite3.Connection,
        write: Write,
        changes: Sequence[Change],
        duplicates: fingerprint_rows.DuplicateTotals,
    ) -> None:
        if self._connection.is_uncertain:
            tables.discard_from(connection, self._memory.end + 1)
            gaps.retract(connection, self._memory.end + 1)
            tables.write_fact(connection, CLOCK_UNTRUSTED, self._memory.untrusted_clock.text())
        write(connection)
        self.wear.note(connection, self._service.now_ms())
        for change in changes:
            change(connection)
        fingerprint_rows.add_duplicates(connection, duplicates)


def _cannot_write(error: Exception) -> str:
    return f"the store cannot write: {error}"
