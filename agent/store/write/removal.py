"""Removes events from the store: purged once processed, given up and declared, or released before they are sent."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable

from agent.store.errors import FAILURES
from agent.store.fingerprints import segments
from agent.store.memory import Memory
from agent.store.read import section
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.write.capacity import Capacity
from agent.store.write.transaction import Transactions

log = logging.getLogger(__name__)


class Removal:
    """Each removal is one transaction, which memory follows after its commit; runs on the writer's thread alone.

    `forget_answers` is called when events are given up: the transports' remembered answers must not ack their resend.
    """

    def __init__(
        self, transactions: Transactions, capacity: Capacity, memory: Memory, forget_answers: Callable[[], None]
    ) -> None:
        self._transactions = transactions
        self._capacity = capacity
        self._memory = memory
        self._forget_answers = forget_answers

    def purge(self, up_to: int) -> None:
        """Delete the commits all of whose events are at or below this position."""
        latest = self._memory.section
        noted = None
        if latest is not None and up_to >= latest.first:
            noted = section.note(latest, self._memory.epochs, self._memory.end)

        def write(connection: sqlite3.Connection) -> None:
            tables.delete_events(connection, up_to)
            if noted is not None:
                tables.write_fact(connection, *noted)

        self._transactions.run(write)
        self._memory.first_kept = up_to + 1

    def give_up(self, gap: Gap) -> None:
        """Record a gap and forget its fingerprints and retransmission keys, so that a resend is stored as new.

        Raise with nothing changed. The gap is declared by the next commit.
        """
        undeclared: list[Gap] = []

        def write(connection: sqlite3.Connection) -> None:
            nonlocal undeclared
            gaps.insert(connection, gap)
            segments.forget(connection, gap.first, gap.last)
            undeclared = gaps.undeclared(gaps.load(connection))

        self._transactions.run(write)
        self._memory.give_up(gap, undeclared)
        self._forget_answers()

    def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
        """Mark events processed, with a fact in the same transaction, and purge; raise with nothing changed.

        Return False with nothing changed where some of them are processed or dropped already. Where only the purge
        fails, they are released, and the next release purges them.
        """
        if self._memory.progress.unprocessed(first, last) != [(first, last)]:
            return False
        with self._memory.progress.releasing(first, last) as change:

            def write(connection: sqlite3.Connection) -> None:
                change(connection)
                tables.write_fact(connection, *note)

            self._transactions.run(write)
        try:
            if (processed_to := self._capacity.purgeable()) is not None:
                self.purge(processed_to)
        except FAILURES as error:
            self._transactions.fail(error)
        return True

    def make_space(self) -> bool:
        """Delete the events that may be removed: processed ones, then the oldest; return False where there are none."""
        if (processed_to := self._capacity.purgeable()) is not None:
            self.purge(processed_to)
        elif dropped := self._capacity.droppable():
            for gap in dropped:
                self.give_up(gap)
            self.purge(dropped[-1].last)
            log.warning("store=full dropped=%d", sum(gap.count for gap in dropped))
        else:
            return False
        return True
