"""What the writer does between commits: marks on disk, processed events purged, old fingerprints forgotten."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from itertools import takewhile

from agent.clock import Clock
from agent.store.errors import FAILURES
from agent.store.fingerprints import rows as known_rows
from agent.store.fingerprints import segments
from agent.store.fingerprints.sealing import Sealing
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.layout import PAGE_BYTES
from agent.store.memory import Memory
from agent.store.schema import database, disk_space
from agent.store.write.committer import Committer

log = logging.getLogger(__name__)

MARKS_MS = 2_000
"""How long marks, and the count of copies, may wait for a commit of events that carries them along."""
PURGE_MS = 10_000
"""The pause between two purges, so that one deletes many commits at once."""
FORGET_MS = 600_000
"""The pause between two looks for fingerprints past their retention."""
FORGET_ROWS = 1_000
"""Of the log, forgotten in one transaction."""
FREE_PAGES_KEPT = disk_space.RESERVE_BYTES // PAGE_BYTES
FREE_SHARE_KEPT = 0.25
"""Free pages that stay, since what comes will need them: on a full disk they are all the room that new events have."""
SHRINK_PAGES = 256
"""Given back in one transaction; what lies in them is moved, a megabyte at most."""
SHRINK_MS = 200
SHRINK_LOOK_MS = 10_000
LOG_MS = 10_000
"""The pause between two looks at the size of the write-ahead log."""
RETRY_MS = 5_000
ROOM_MS = 5_000
"""The pause between two looks whether there is room for what can wait."""


class Housekeeping:
    """Due dates on the monotonic clock; runs on the writer's thread alone."""

    def __init__(
        self,
        committer: Committer,
        memory: Memory,
        clock: Clock,
        keep_processed_seconds: float,
        retention_seconds: float,
    ) -> None:
        self._committer = committer
        self._memory = memory
        self._clock = clock
        self._keep_ms = int(keep_processed_seconds * 1000)
        self._retention_ms = int(retention_seconds * 1000)
        now = clock.monotonic_ms()
        self._marks_since: int | None = None
        self._purge_at = now
        self._forget_at = now
        self._retry_at = now
        self._shrink_at = now
        self._log_at = now
        self._sealing = Sealing(memory.fingerprints, committer.transact, committer.service, memory.proofs.lifetime_ms)
        memory.progress.processed_times.append((now, memory.progress.processed_to(memory.first_kept)))

    def turn(self) -> float | None:
        """Do what is due; return the seconds until something will be, None where nothing is foreseen."""
        now = self._clock.monotonic_ms()
        if now < self._retry_at:
            return (self._retry_at - now) / 1000
        try:
            dues = (self._marks(now), self._purge(now), self._forget(now), self._seal(now), self._shrink(now))
            self._log(now)
        except FAILURES as error:
            self._committer.report(error)
            log.error("store=housekeeping-failed reason=%r retry_seconds=%d", str(error), RETRY_MS // 1000)
            self._retry_at = now + RETRY_MS
            return RETRY_MS / 1000
        return max(min(due for due in dues if due is not None) - now, 1) / 1000

    def flush(self) -> None:
        """Write what is pending now: marks, and the count of copies."""
        if self._has_pending():
            self._committer.transact(lambda connection: None)

    def _has_pending(self) -> bool:
        return self._memory.progress.has_pending() or self._committer.copies.has_pending()

    def _marks(self, now: int) -> int:
        """Write marks and copies that no commit of events has carried along in time.

        Copies that a way in answers itself wake nobody: so they are looked for.
        """
        if not self._has_pending():
            self._marks_since = None
            return now + MARKS_MS
        if self._marks_since is None:
            self._marks_since = now
        if now - self._marks_since >= MARKS_MS:
            self.flush()
            self._marks_since = None
            return now + MARKS_MS
        return self._marks_since + MARKS_MS

    def _purge(self, now: int) -> int | None:
        times = self._memory.progress.processed_times
        if not times:
            return None
        if now < self._purge_at:
            return self._purge_at
        purgeable = None
        while times and times[0][0] + self._keep_ms <= now:
            purgeable = times.popleft()[1]
        if purgeable is not None and purgeable >= self._memory.first_kept:
            self._committer.purge(purgeable)
            self._purge_at = now + PURGE_MS
        return max(times[0][0] + self._keep_ms, self._purge_at) if times else None

    def _forget(self, now: int) -> int:
        if now < self._forget_at:
            return self._forget_at
        if not self._committer.may_tidy(grows=False):
            return now + ROOM_MS
        self._forget_at = now + FORGET_MS
        boundary = self._committer.service() - self._retention_ms
        if self._forget_rows(boundary) or self._forget_segment(boundary):
            self._forget_at = now
        return self._forget_at

    def _forget_rows(self, boundary: int) -> bool:
        """Forget the oldest rows of the log that are past the retention; False where there are none."""
        known = self._memory.fingerprints
        rows = known_rows.rows_above(self._committer.connection(), 0, FORGET_ROWS)
        old = list(takewhile(lambda row: row.service < boundary, rows))
        if not old:
            known.expire(0, boundary)
            return False
        last = old[-1].first_position
        floor = last + len(old[-1].fingerprints) // FINGERPRINT_BYTES

        def write(connection: sqlite3.Connection) -> None:
            known_rows.delete_fingerprints(connection, last)
            segments.delete_forgotten(connection, _lowest(floor, known.segments()))

        self._committer.transact(write)
        known.expire(floor, boundary)
        return True

    def _forget_segment(self, boundary: int) -> bool:
        """Drop a segment all of which is past the retention; False where there is none."""
        known = self._memory.fingerprints
        old = next((segment for segment in known.segments() if segment.service < boundary), None)
        if old is None:
            return False
        others = [segment for segment in known.segments() if segment is not old]
        logged = [row.first_position for row in known_rows.rows_above(self._committer.connection(), 0, 1)]
        floor = _lowest(min([old.last + 1, *logged]), others)

        def write(connection: sqlite3.Connection) -> None:
            segments.delete_segment(connection, old.number)
            segments.delete_forgotten(connection, floor)

        self._committer.transact(write)
        known.drop_segment(old.number)
        known.expire(floor, boundary)
        return True

    def _shrink(self, now: int) -> int | None:
        """Release room to the file system, a little at a time, where much of the file holds nothing."""
        if now < self._shrink_at:
            return self._shrink_at
        free, pages = database.free_pages(self._committer.connection())
        if free - SHRINK_PAGES < max(FREE_PAGES_KEPT, pages * FREE_SHARE_KEPT) or not self._committer.may_tidy(
            grows=False
        ):
            self._shrink_at = now + SHRINK_LOOK_MS
            return None
        self._committer.transact(lambda connection: database.shrink(connection, SHRINK_PAGES))
        database.write_back(self._committer.connection())
        self._shrink_at = now + SHRINK_MS
        return self._shrink_at

    def _log(self, now: int) -> None:
        """Look whether a reader has kept the log from being emptied for so long that it has grown.

        It grows with commits alone, which bring a turn each.
        """
        if now >= self._log_at:
            self._committer.watch_log()
            self._log_at = now + LOG_MS

    def _seal(self, now: int) -> int | None:
        """Go on with sealing, a step at a time; None where nothing is to be sealed.

        A segment takes room before the rows that it replaces give theirs back.
        """
        if not self._committer.may_tidy(grows=True):
            return now + ROOM_MS
        return now if self._sealing.step() else None


def _lowest(floor: int, kept: Iterable[Segment]) -> int:
    """Return the position below which nothing is remembered, where nothing but these segments is below a floor."""
    return min([floor, *(segment.first for segment in kept)])
