"""Forgets fingerprints: past their retention, and earlier where they take more than their share of the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import takewhile

from agent.store.facts import FORGOTTEN_EARLY
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.memory import Memory
from agent.store.schema import tables
from agent.store.write.transaction import Transactions

log = logging.getLogger(__name__)

ROWS_PER_PIECE = 256
"""How many rows of fingerprints one transaction forgets, each at most a page."""


class Forgetting:
    """Forgets in pieces, the oldest first, as `Removal` deletes events; runs on the writer's thread alone.

    The row of a segment is deleted first, then its entries: a kill in between leaves entries that do not count.
    """

    def __init__(self, transactions: Transactions, memory: Memory) -> None:
        self._connection = transactions.connection.get
        self._transactions = transactions
        self._capacity = transactions.capacity
        self._memory = memory

    def forget(self, boundary_ms: int) -> bool:
        """Forget a piece of what is older than a service time or takes too much; return False if there is none."""
        return self.forget_early() or self._forget_rows(boundary_ms) or self._forget_segment(boundary_ms)

    def forget_early(self) -> bool:
        """Forget a piece of what takes too much, or is left of a forgotten segment; return False where none is."""
        number = self._capacity.forgettable()
        if number is None:
            return False
        found = next((segment for segment in self._memory.fingerprints.segments() if segment.number == number), None)
        if found is None:
            with self._transactions.begin(write_back=True) as sql:
                segments.delete_piece(sql, number)
            return True
        total = self._memory.forgotten_early + found.count
        self._drop(found, 0, (FORGOTTEN_EARLY, str(total)))
        self._memory.forgotten_early = total
        log.warning(
            "store=fingerprints forgotten=%d effect=%r hint=%r",
            found.count,
            "resends of these events are sent to Kafka again, and dropped by the job",
            "raise store.max_bytes, or lower identity.retention",
        )
        return True

    def _forget_rows(self, boundary_ms: int) -> bool:
        """Forget the oldest rows that were committed before a service time; return False where there are none."""
        index = self._memory.fingerprints
        rows = fingerprint_rows.rows_above(self._connection(), 0, ROWS_PER_PIECE)
        old = list(takewhile(lambda row: row.service_ms < boundary_ms, rows))
        if not old:
            index.expire(0, boundary_ms)
            return False
        last = old[-1].first_position
        floor = last + len(old[-1].fingerprints) // FINGERPRINT_BYTES
        with self._transactions.begin(write_back=True) as sql:
            fingerprint_rows.delete_rows(sql, last)
            segments.delete_forgotten(sql, _lowest(floor, index.segments()))
        index.expire(floor, boundary_ms)
        return True

    def _forget_segment(self, boundary_ms: int) -> bool:
        """Forget a segment all of which was committed before a service time; return False where there is none."""
        old = next((one for one in self._memory.fingerprints.segments() if one.service_ms < boundary_ms), None)
        if old is not None:
            self._drop(old, boundary_ms)
        return old is not None

    def _drop(self, old: Segment, boundary_ms: int, note: tuple[str, str] | None = None) -> None:
        """Delete a segment's row, with a fact beside it."""
        index = self._memory.fingerprints
        others = [segment for segment in index.segments() if segment is not old]
        rows = fingerprint_rows.rows_above(self._connection(), 0, 1)
        floor = _lowest(min([old.last + 1, *(row.first_position for row in rows)]), others)
        with self._transactions.begin(write_back=True) as sql:
            segments.delete_segment(sql, old.number)
            segments.delete_forgotten(sql, floor)
            if note is not None:
                tables.write_fact(sql, *note)
        index.drop_segment(old.number)
        index.expire(floor, boundary_ms)


def _lowest(floor: int, kept: Iterable[Segment]) -> int:
    """Return the position below which no fingerprint is stored, given those from `floor` on and these."""
    return min([floor, *(segment.first for segment in kept)])
