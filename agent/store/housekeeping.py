"""What the writer does between commits: marks on disk, processed events purged, old fingerprints forgotten."""

from __future__ import annotations

import logging
import sqlite3

from agent.clock import Clock
from agent.store import known_rows
from agent.store.committer import Committer, UnknownOutcomeError
from agent.store.damage import is_damage
from agent.store.database import StoreError
from agent.store.known import split
from agent.store.opening import Memory

log = logging.getLogger(__name__)

MARKS_MS = 2_000
"""How long marks may wait for a commit of events that carries them along."""
PURGE_MS = 10_000
"""The pause between two purges, so that one deletes many commits at once."""
FORGET_MS = 600_000
"""The pause between two looks for fingerprints past their retention."""
RETRY_MS = 5_000


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
        now = clock.monotonic()
        self._marks_since: int | None = None
        self._purge_at = now
        self._forget_at = now
        memory.progress.processed_times.append((now, memory.progress.processed_to(memory.first_kept)))

    def turn(self) -> float | None:
        """Do what is due; give the seconds until something will be, None where nothing is foreseen."""
        now = self._clock.monotonic()
        try:
            dues = (self._marks(now), self._purge(now), self._forget(now))
        except (sqlite3.Error, StoreError, UnknownOutcomeError, OSError) as error:
            if is_damage(error):
                self._committer.damaged(error)
            log.error("store=housekeeping-failed reason=%r retry_seconds=%d", str(error), RETRY_MS // 1000)
            return RETRY_MS / 1000
        return max(min(due for due in dues if due is not None) - now, 1) / 1000

    def flush(self) -> None:
        """Write what is pending now: marks, and the count of copies."""
        if self._memory.progress.has_pending() or self._committer.copies.has_pending():
            self._committer.transact(lambda connection: None)

    def _marks(self, now: int) -> int | None:
        if not self._memory.progress.has_pending():
            self._marks_since = None
            return None
        if self._marks_since is None:
            self._marks_since = now
        if now - self._marks_since >= MARKS_MS:
            self.flush()
            self._marks_since = None
            return None
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
        self._forget_at = now + FORGET_MS
        connection = self._committer.connection()
        old = list(
            known_rows.load_fingerprints(connection, before_service=self._committer.service() - self._retention_ms)
        )
        if not old:
            return self._forget_at
        self._committer.transact(lambda writing: known_rows.delete_fingerprints(writing, old[-1].first_position))
        known = self._memory.fingerprints
        for remembered in old:
            for place, fingerprint in enumerate(split(remembered.fingerprints)):
                if known.get(fingerprint) == remembered.first_position + place:
                    del known[fingerprint]
        self._forget_at = now
        return now
