"""Removes from the store: events purged once processed, given up and declared, or released before they are sent.

And fingerprints: past their retention, and earlier where they take more than their share of the store.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile

from agent.store.errors import FAILURES
from agent.store.facts import FORGOTTEN_EARLY
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.read import section
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.write.transaction import Transactions

log = logging.getLogger(__name__)


PIECE_BYTES = 256 << 10
"""How much one transaction deletes. Small commits are deleted page by page, so the log grows by as much and a tenth."""
ROWS_PER_PIECE = 256
"""How many rows of fingerprints one transaction forgets, each at most a page."""
PIECE_BYTES_MIN = 16 << 10
"""How much it deletes at least where larger pieces have failed, as for lack of space."""


class Removal:
    """Deletes in pieces, the oldest first (decision 78); runs on the writer's thread alone.

    Each piece is one transaction, which memory follows after its commit, and after which the log is written back.
    Each of `forget_answers` is called when events are given up: remembered answers of transports must not ack their
    resend.
    """

    def __init__(
        self,
        transactions: Transactions,
        forget_answers: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._transactions = transactions
        self._connection = transactions.connection
        self._capacity = transactions.capacity
        self._memory = transactions.memory
        self._forget_answers = forget_answers
        self._purge_to = 0
        self._piece_bytes = PIECE_BYTES
        self.is_behind = False
        """Whether more than new events could wait for is to be removed, as far as it is known."""

    @property
    def is_due(self) -> bool:
        """Whether a purge has begun, and pieces of it are left."""
        return self._purge_to >= self._memory.first_kept

    def purge(self, up_to: int) -> None:
        """Delete the commits that end at or below this position: a piece now, the others one by one."""
        self._purge_to = max(self._purge_to, up_to)
        self.continue_purge()

    def continue_purge(self) -> None:
        if self.is_due:
            with self._noting_failure():
                self._purge_piece(self._purge_to)

    def _purge_piece(self, up_to: int) -> None:
        with self._transactions.begin(write_back=True) as sql:
            done_to = tables.delete_events(sql, up_to, self._piece_bytes)
            latest = self._memory.section
            if latest is not None and done_to >= latest.first:
                tables.write_fact(sql, *section.note(latest, self._memory.epochs, self._memory.end))
        self._memory.first_kept = done_to + 1

    def give_up(self, gap: Gap) -> None:
        """Record a gap and forget its fingerprints and retransmission keys, so that a resend is stored as new.

        Raise with nothing changed. The gap is declared by the next commit.
        """
        with self._transactions.begin() as sql:
            gaps.insert(sql, gap)
            segments.forget(sql, gap.first, gap.last)
            undeclared = gaps.undeclared(gaps.load(sql))
        self._memory.fingerprints.forget(gap.first, gap.last)
        self._memory.progress.give_up(gap.first, gap.last)
        self._memory.undeclared = undeclared
        for forget in self._forget_answers:
            forget()

    def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
        """Mark events processed, with a fact in the same transaction, and purge; raise with nothing changed.

        Return False with nothing changed where some of them are processed or dropped already. Where only the purge
        fails, they are released, and the next release purges them.
        """
        if self._memory.progress.unprocessed(first, last) != [(first, last)]:
            return False
        with self._memory.progress.releasing(first, last) as change, self._transactions.begin() as sql:
            change(sql)
            tables.write_fact(sql, *note)
        try:
            if (processed_to := self._capacity.purgeable()) is not None:
                self.purge(processed_to)
        except FAILURES as error:
            self._transactions.fail(error)
        return True

    def make_space(self) -> bool:
        """Delete a piece of what may be removed: processed events, fingerprints beyond their share, the oldest events.

        Return False where there is none.
        """
        if not self._capacity.may_remove:
            return False
        with self._noting_failure():
            if (processed_to := self._capacity.purgeable()) is not None:
                self._purge_piece(processed_to)
            elif self._forget_early():
                pass
            elif dropped := self._capacity.droppable():
                for gap in dropped:
                    self.give_up(gap)
                self.purge(dropped[-1].last)
                log.warning("store=full dropped=%d", sum(gap.count for gap in dropped))
            else:
                return False
        return True

    def forget(self, boundary_ms: int) -> bool:
        """Forget a piece of what is older than a service time or takes too much; return False if there is none.

        The row of a segment is deleted first, then its entries: a kill in between leaves entries that do not count.
        """
        return self._forget_early() or self._forget_rows(boundary_ms) or self._forget_segment(boundary_ms)

    def _forget_early(self) -> bool:
        """Forget a segment early, or a piece of an already forgotten one; return False where there is none."""
        number = self._capacity.forgettable()
        if number is None:
            return False
        found = next((segment for segment in self._memory.fingerprints.segments() if segment.number == number), None)
        if found is None:
            with self._transactions.begin(write_back=True) as sql:
                segments.delete_entries(sql, number, segments.ROWS_PER_PIECE)
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
        rows = fingerprint_rows.rows_above(self._connection.get(), 0, ROWS_PER_PIECE)
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
        rows = fingerprint_rows.rows_above(self._connection.get(), 0, 1)
        floor = _lowest(min([old.last + 1, *(row.first_position for row in rows)]), others)
        with self._transactions.begin(write_back=True) as sql:
            segments.delete_segment(sql, old.number)
            segments.delete_forgotten(sql, floor)
            if note is not None:
                tables.write_fact(sql, *note)
        index.drop_segment(old.number)
        index.expire(floor, boundary_ms)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Note whether the removal in the block fails; the next one tries a smaller piece."""
        try:
            yield
        except FAILURES:
            self._capacity.removal_failed = True
            self._piece_bytes = max(PIECE_BYTES_MIN, self._piece_bytes // 4)
            raise
        self._capacity.removal_failed = False
        self._piece_bytes = PIECE_BYTES


def _lowest(floor: int, kept: Iterable[Segment]) -> int:
    """Return the position below which no fingerprint is stored, by `floor` and the kept segments."""
    return min([floor, *(segment.first for segment in kept)])
