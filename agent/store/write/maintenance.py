"""The writer's work between commits: writes marks, purges processed events, forgets fingerprints, seals, shrinks."""

import logging
from collections.abc import Callable

from agent.clock import Clock
from agent.store.errors import FAILURES
from agent.store.fingerprints.sealing import Sealing
from agent.store.layout import PAGE_BYTES
from agent.store.schema import database, disk_space
from agent.store.write.removal import Removal
from agent.store.write.transaction import Transactions

log = logging.getLogger(__name__)

MARKS_MS = 2_000
"""How long marks may wait for a commit of events that carries them."""
DUPLICATES_MS = 30_000
"""The same for duplicates, since a commit for each of them would wear the card; readers request them (decision 72)."""
PURGE_MS = 10_000
"""The pause between two purges, so that one deletes many commits at once."""
FORGET_MS = 600_000
"""The pause between two checks for fingerprints past their retention."""
FREE_PAGES_KEPT = disk_space.RESERVE_BYTES // PAGE_BYTES
FREE_SHARE_KEPT = 0.25
"""Free pages that stay, since new events will need them: on a full disk they have no other space."""
SHRINK_PAGES = 256
"""Pages returned in one transaction, which moves their content: a megabyte at most."""
SHRINK_MS = 200
SHRINK_CHECK_MS = 10_000
CLOCK_MS = 5_000
"""The pause between two checks whether an untrusted clock has become a trusted one."""
LOG_MS = 10_000
"""The pause between two checks of the write-ahead log's size."""
RETRY_MS = 5_000
CAPACITY_MS = 5_000
"""The pause between two checks whether there is space for work that can wait."""


class Maintenance:
    """Due times on the monotonic clock; runs on the writer's thread alone."""

    def __init__(
        self,
        transactions: Transactions,
        removal: Removal,
        clock: Clock,
        keep_processed_seconds: float,
        retention_seconds: float,
        declare: Callable[[], None],
    ) -> None:
        """Create it; `declare` stores the events by which the gateway declares gaps, clock and digests, where due."""
        self._transactions = transactions
        self._connection = transactions.connection.get
        self._capacity = transactions.capacity
        self._removal = removal
        self._declare = declare
        self._memory = memory = transactions.memory
        self._clock = clock
        self._keep_ms = int(keep_processed_seconds * 1000)
        self._retention_ms = int(retention_seconds * 1000)
        now = clock.monotonic_ms()
        self._marks_since: int | None = None
        self._duplicates_since: int | None = None
        self._purge_at = now
        self._failed_since: int | None = None
        self._forget_at = now
        self._retry_at = now
        self._shrink_at = now
        self._log_at = now
        self._clock_at = now
        self._sealing = Sealing(
            memory.fingerprints,
            self._connection,
            transactions.begin,
            transactions.service.now_ms,
            memory.retransmissions.lifetime_ms,
        )
        memory.progress.processed_times.note(now, memory.progress.processed_to(memory.first_kept))

    def run_due(self) -> float | None:
        """Do what is due; return the seconds until more is due, None where nothing is planned."""
        now = self._clock.monotonic_ms()
        if now < self._retry_at:
            return (self._retry_at - now) / 1000
        try:
            dues = (
                *(self._marks(now), self._purge(now), self._forget(now), self._seal(now), self._shrink(now)),
                *(self._correct_clock(now), self._retry_removal(now)),
            )
            self._limit_log(now)
            self._close_section(now)
        except FAILURES as error:
            self._transactions.report(error)
            log.error("store=maintenance-failed reason=%r retry_seconds=%d", str(error), RETRY_MS // 1000)
            self._retry_at = now + RETRY_MS
            return RETRY_MS / 1000
        return max(min(due for due in dues if due is not None) - now, 1) / 1000

    def flush(self) -> None:
        """Write pending marks and duplicates now; raise one of FAILURES with nothing written."""
        try:
            self._transactions.flush()
        except FAILURES as error:
            self._transactions.report(error)
            raise

    def _marks(self, now: int) -> int:
        """Write marks and duplicates that no commit of events has written in time.

        Duplicates that a transport answers itself wake no thread, so each iteration checks their number.
        """
        self._marks_since = _since(self._marks_since, now, self._memory.progress.has_pending())
        self._duplicates_since = _since(self._duplicates_since, now, self._transactions.duplicates.has_pending())
        if _age(self._marks_since, now) >= MARKS_MS or _age(self._duplicates_since, now) >= DUPLICATES_MS:
            self._transactions.flush()
            self._marks_since = self._duplicates_since = None
        return (now if self._marks_since is None else self._marks_since) + MARKS_MS

    def _purge(self, now: int) -> int | None:
        """Begin the purge of what has been processed for long enough, or continue one by a piece."""
        times, removal = self._memory.progress.processed_times, self._removal
        if removal.is_due:
            if self._capacity.is_log_long:
                return now + CAPACITY_MS
            removal.continue_purge()
        elif now >= self._purge_at:
            purgeable = times.pop_until(now - self._keep_ms)
            if purgeable is not None and purgeable >= self._memory.first_kept:
                self._purge_at = now + PURGE_MS
                removal.purge(purgeable)
        if removal.is_behind:
            removal.is_behind = self._capacity.is_full() and removal.make_space()
        if removal.is_due or removal.is_behind:
            return now
        oldest_ms = times.oldest_ms()
        return None if oldest_ms is None else max(oldest_ms + self._keep_ms, self._purge_at)

    def _retry_removal(self, now: int) -> int | None:
        """Retry a failed removal: requests do not retry it, and without requests nobody else would."""
        capacity = self._capacity
        self._failed_since = _since(self._failed_since, now, capacity.removal_failed)
        if self._failed_since is None:
            return None
        if _age(self._failed_since, now) >= RETRY_MS:
            self._failed_since, capacity.removal_failed = None, False
            if capacity.is_full() and capacity.removable():
                self._removal.make_space()
        return (now if self._failed_since is None else self._failed_since) + RETRY_MS

    def _forget(self, now: int) -> int:
        capacity = self._capacity
        if now < self._forget_at and not capacity.exceeds_share:
            return self._forget_at
        if not capacity.allows_maintenance(grows=False):
            return now + CAPACITY_MS
        is_more = self._removal.forget(self._transactions.service.now_ms() - self._retention_ms)
        self._forget_at = now if is_more else now + FORGET_MS
        return self._forget_at

    def _seal(self, now: int) -> int | None:
        """Continue sealing; return None where nothing is to be sealed.

        A segment needs space before the rows that it replaces are deleted.
        """
        if not self._sealing.is_due:  # asked in each cycle, the file system after it only
            return None
        if not self._capacity.allows_maintenance(grows=True):
            return now + CAPACITY_MS
        return now if self._sealing.catch_up() else None

    def _shrink(self, now: int) -> int | None:
        """Return space to the file system, a little at a time, where much of the file is free."""
        if now < self._shrink_at:
            return self._shrink_at
        free, pages = database.free_pages(self._connection())
        is_small = self._removal.is_due or free - SHRINK_PAGES < max(FREE_PAGES_KEPT, pages * FREE_SHARE_KEPT)
        if is_small or not self._capacity.allows_maintenance(grows=False):
            self._shrink_at = now + SHRINK_CHECK_MS
            return None
        with self._transactions.begin() as sql:
            database.shrink(sql, SHRINK_PAGES)
        database.write_back(self._connection())
        self._shrink_at = now + SHRINK_MS
        return self._shrink_at

    def _correct_clock(self, now: int) -> int | None:
        """Declare by how much the clock was behind, where no commit of events has done so since it is trusted."""
        if not self._memory.untrusted_clock.begun:
            return None
        if now >= self._clock_at:
            self._clock_at = now + CLOCK_MS
            self._declare()
        return self._clock_at

    def _close_section(self, now: int) -> None:
        """Have the digest of the latest section stated where that is due, also where no event follows."""
        section = self._memory.section
        if section is not None and section.is_due(self._memory.end, now):
            self._declare()

    def _limit_log(self, now: int) -> None:
        """Empty the log where a reader has kept it growing; each commit, by which alone it grows, brings a cycle."""
        if now >= self._log_at:
            self._capacity.limit_log()
            self._log_at = now + LOG_MS


def _since(before: int | None, now: int, is_pending: bool) -> int | None:
    """Return since when something has been pending, None where nothing is."""
    if not is_pending:
        return None
    return now if before is None else before


def _age(since: int | None, now: int) -> int:
    return 0 if since is None else now - since
