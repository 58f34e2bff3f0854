"""The capacity of the store: when there is no space for new events, and which events are removed first."""

import logging
from contextlib import closing
from pathlib import Path

from agent.config.settings import StoreSettings
from agent.store import layout
from agent.store.errors import StoreError
from agent.store.fingerprints import segments
from agent.store.fingerprints.segments import SEALED_BYTES, SHARE
from agent.store.memory import Memory
from agent.store.schema import database, disk_space, tables
from agent.store.schema.database import GetConnection
from agent.store.schema.gaps import Gap
from agent.store.write.decision import STORE_FULL

log = logging.getLogger(__name__)

DROP_SHARE = 0.02
"""How much of a store at its bound is dropped at once, so that few events declare it."""
DROP_BYTES_MIN = 1 << 20
"""How much is dropped at once where the disk is full and less is missing, for the same reason."""
LOG_WAIT_MS = 50
"""How long a full store waits, once, for readers of its log; a reading command holds it for less."""
DROPPED = "dropped for newer events: the store was full"


class Capacity:
    """The bound of the store, its log included, and of the file system below it."""

    def __init__(self, path: Path, settings: StoreSettings, memory: Memory, connection: GetConnection) -> None:
        self._file = path
        self._connection = connection
        """Returns the writing connection; most questions are answered without it."""
        self._bytes_max = disk_space.bound(settings.max_bytes)
        self._drop_bytes = int(settings.max_bytes * DROP_SHARE)
        self._drops = settings.when_full == "drop-oldest"
        self._memory = memory
        self._missing_bytes = 0
        """How much space was missing on the file system at the latest decision on new events."""
        self._refused_bytes = 0
        """How large the latest events were for which there was no space."""
        self._log_blocked = False
        """Whether another process keeps the log from being emptied: then no removal frees space."""
        self.removal_failed = False
        """Whether the latest removal has failed: a retry for each request would write as much again."""

    def has_space_for(self, arriving_bytes: int) -> bool:
        """Whether there is space for new events of this size; where there is none, the store is full until there is."""
        if self._is_full_for(arriving_bytes):
            self._refused_bytes = arriving_bytes
            return False
        if arriving_bytes >= self._refused_bytes:
            self._refused_bytes = 0
        return True

    def is_full(self) -> bool:
        """Whether there is no space for new events: the store is at its bound, or the file system below it is full."""
        return self._is_full_for(self._refused_bytes)

    def allows_maintenance(self, *, grows: bool) -> bool:
        """Whether there is space for work that can wait; a blocked log alone delays what does not grow the file."""
        if not grows and not self._log_blocked:
            return True
        return disk_space.is_ample(self._file) or not self._space().missing_bytes()

    def check_log(self) -> None:
        """Raise StoreError where another transaction could use the space that the log needs to be written back.

        A log that cannot be written back could never be truncated again, even once its reader has ended (decision 48).
        """
        if disk_space.log_bytes(self._file) <= layout.LOG_BYTES_KEPT or disk_space.is_ample(self._file):
            return
        if self._space().endangers_log:
            self._write_back()
            if self._space().endangers_log:
                raise StoreError(self._blocked_message() if self._log_blocked else disk_space.LOG_NEEDS_SPACE)

    def stays_full(self) -> bool:
        """Whether there is no space for new events, and nothing may be removed for them."""
        return self.is_full() and not (self.may_remove and (self.removable() or self.droppable()))

    def removable(self) -> bool:
        """Whether something may be removed without losing an event."""
        return self.purgeable() is not None or self.forgettable() is not None

    @property
    def may_remove(self) -> bool:
        """Whether a removal may be attempted to make space.

        Not while the log is blocked: it would grow by what is removed, until all is removed.
        """
        return not (self._log_blocked or self.removal_failed)

    @property
    def is_log_long(self) -> bool:
        """Whether a reader keeps the log from being restarted."""
        return disk_space.log_bytes(self._file) > disk_space.LOG_BYTES_EXPECTED

    def refusal(self) -> str:
        """Return why there is no space for new events, as text."""
        if self._log_blocked:
            return self._blocked_message()
        return disk_space.DISK_FULL if self._missing_bytes else STORE_FULL

    def limit_log(self) -> None:
        """Empty the log where it has grown beyond what is expected; log a warning where a reader blocks it."""
        if self._log_blocked or self.is_log_long:
            self._empty_log()

    def purgeable(self) -> int | None:
        """Return the position up to which all that is kept is processed, None where nothing is."""
        processed_to = self._memory.progress.processed_to(self._memory.first_kept)
        return processed_to if processed_to >= self._memory.first_kept else None

    @property
    def exceeds_share(self) -> bool:
        """Whether sealed fingerprints take more than their share of the store, or of its part of a full disk."""
        sealed_bytes = self._memory.fingerprints.sealed_events * SEALED_BYTES
        bytes_max = self._bytes_max
        if sealed_bytes and self._missing_bytes:
            bytes_max = min(bytes_max, database.used_bytes(self._connection()) - self._missing_bytes)
        return sealed_bytes > bytes_max * SHARE

    def forgettable(self) -> int | None:
        """Return the segment to be forgotten early, or a partly forgotten one, or None."""
        index = self._memory.fingerprints
        left = next(segments.numbers(self._connection()), None)
        if left is not None and not index.has_segment(left):
            return left
        return next(index.segments()).number if self.exceeds_share else None

    def droppable(self) -> list[Gap]:
        """Return the unprocessed events of the oldest commits, as whole batches, where they are to be dropped.

        Nothing where the log lacks space: a removal frees pages of the file, and no space on the file system.
        """
        if not self._drops or not self._may_write_back():
            return []
        drop_bytes, size, last = self._drop_bytes, 0, 0
        if self._missing_bytes and not self._is_at_bound():
            drop_bytes = max(self._missing_bytes, min(drop_bytes, DROP_BYTES_MIN))
        with closing(tables.commit_sizes(self._connection())) as commits:
            for _, end, length in commits:
                if size >= drop_bytes and self._memory.progress.may_cut_after(last):
                    break
                size += length
                last = end
        ranges = self._memory.progress.unprocessed(self._memory.first_kept, last)
        return [Gap(first, end, DROPPED) for first, end in ranges]

    def _is_full_for(self, arriving_bytes: int) -> bool:
        self._missing_bytes = self._find_missing_bytes(arriving_bytes)
        return self._is_at_bound() or self._missing_bytes > 0

    def _find_missing_bytes(self, arriving_bytes: int) -> int:
        """Return how much space is missing for new events, once the log has been reduced as far as possible."""
        if disk_space.is_ample(self._file, arriving_bytes):
            return 0
        if missing := self._space().missing_bytes(arriving_bytes):
            self._write_back()
            missing = self._space().missing_bytes(arriving_bytes)
        return missing

    def _write_back(self) -> None:
        """Write the log back as far as readers allow, and empty it where it has grown beyond its size.

        A log of the usual size keeps its length: other programs could use its space, once returned.
        """
        if self._log_blocked or self.is_log_long:
            self._empty_log()
        elif self._may_write_back():
            database.write_back(self._connection())

    def _may_write_back(self) -> bool:
        return disk_space.is_ample(self._file) or self._space().may_write_back

    def _space(self) -> disk_space.Space:
        return disk_space.space(self._file, self._connection())

    def _is_at_bound(self) -> bool:
        # Read for each commit: the file system answers several times faster than SQLite.
        if self._bytes_at_most() < self._bytes_max or self._bytes() < self._bytes_max:
            return False
        self._empty_log()  # it may occupy space that is not needed
        return self._bytes() >= self._bytes_max

    def _empty_log(self) -> None:
        """Cut the log where the file can take it; the writer waits only once for a reader that does not end."""
        if not self._may_write_back():
            return
        blocked = not database.empty_log(self._connection(), wait_ms=0 if self._log_blocked else LOG_WAIT_MS)
        if blocked and not self._log_blocked:
            log.warning(
                "store=log-held bytes=%d effect=%r hint=%r",
                disk_space.log_bytes(self._file),
                "it grows until the reader ends, and counts as store",
                f"fuser -v {self._file}",
            )
        elif self._log_blocked and not blocked:
            log.warning("store=log-released")
        self._log_blocked = blocked

    def _bytes_at_most(self) -> int:
        """Return an upper bound: the log counts twice, since pages that are only there may make the file longer."""
        return self._file.stat().st_size + 2 * disk_space.log_bytes(self._file)

    def _bytes(self) -> int:
        return database.used_bytes(self._connection()) + disk_space.log_bytes(self._file)

    def _blocked_message(self) -> str:
        return f"the store is full: its log cannot be emptied while another process reads it; fuser -v {self._file}"
