"""Room on the disk: when the store is full, and what leaves it first."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from agent.settings import StoreSettings
from agent.store import database, disk
from agent.store.decision import STORE_FULL
from agent.store.gaps import Gap
from agent.store.opening import Memory

log = logging.getLogger(__name__)

RESERVE_BYTES_MAX = 16 << 20
"""Room that new events may not take, so that receipts and deletes still work when the store is full."""
RESERVE_SHARE = 0.1
DROP_SHARE = 0.02
"""How much of the store is dropped in one go, so that few events declare it."""
LOG_WAIT_MS = 50
"""How long a full store waits, once, for readers of its log: a reading command holds it for a page, which is less."""
LOG_BYTES_EXPECTED = 16 << 20
"""Four times what SQLite lets the log grow to, where nobody holds it."""
DROPPED = "dropped for newer events: the store was full"


class Room:
    """The bound of the store, log included."""

    def __init__(self, path: Path, settings: StoreSettings, memory: Memory) -> None:
        self._file, self._log = path, Path(f"{path}-wal")
        self._bytes_max = settings.max_bytes - min(RESERVE_BYTES_MAX, int(settings.max_bytes * RESERVE_SHARE))
        self._drop_bytes = int(settings.max_bytes * DROP_SHARE)
        self._drops = settings.when_full == "drop-oldest"
        self._memory = memory
        self._disk_is_low = False
        self._held = False
        """Whether another process keeps the log from being emptied: then nothing that leaves the store makes room."""

    def is_full(self, connection: sqlite3.Connection) -> bool:
        """Whether new events have no room: the store is at its bound, or the file system below it is full."""
        self._disk_is_low = disk.is_low(self._file, connection)
        return self._is_at_bound(connection) or self._disk_is_low

    def stays_full(self, connection: sqlite3.Connection) -> bool:
        """Whether new events have no room, and nothing may leave for them."""
        return self.is_full(connection) and self.purgeable() is None and not self.droppable(connection)

    def refusal(self) -> str:
        """Return why new events have no room, for people."""
        if not self._held:
            return disk.DISK_FULL if self._disk_is_low else STORE_FULL
        return f"the store is full: its log cannot be emptied while another process reads it; fuser -v {self._file}"

    def watch_log(self, connection: sqlite3.Connection) -> None:
        """Empty the log where it has grown beyond what is expected, and log a warning where a reader holds it."""
        if self._held or self._log.stat().st_size > LOG_BYTES_EXPECTED:
            self._empty_log(connection)

    def purgeable(self) -> int | None:
        """Give the position up to which all that is kept is processed: kept for comfort, not for need."""
        processed_to = self._memory.progress.processed_to(self._memory.first_kept)
        return processed_to if processed_to >= self._memory.first_kept else None

    def droppable(self, connection: sqlite3.Connection) -> list[Gap]:
        """Return what is not processed of the oldest commits, whole batches of it, where they are to be dropped.

        Nothing while the log is held: it grows by what is written, and by the dropping, too, until all is dropped.
        """
        if not self._drops or self._held:
            return []
        size, last = 0, 0
        for first, count, length in connection.execute(
            "SELECT first_position, count, length(packed) FROM events ORDER BY first_position"
        ):
            if size >= self._drop_bytes and self._memory.progress.may_cut_after(last):
                break
            size += length
            last = first + count - 1
        ranges = self._memory.progress.unprocessed(self._memory.first_kept, last)
        return [Gap(first, end, DROPPED) for first, end in ranges]

    def _is_at_bound(self, connection: sqlite3.Connection) -> bool:
        # Asked for each commit: SQLite takes several times as long to say it as the file system.
        if self._bytes_at_most() < self._bytes_max or self._bytes(connection) < self._bytes_max:
            return False
        self._empty_log(connection)  # it may hold on to room that nobody needs
        return self._bytes(connection) >= self._bytes_max

    def _empty_log(self, connection: sqlite3.Connection) -> None:
        """Cut the log; of a reader that does not end the writer waits for the first time only."""
        held = not database.empty_log(connection, wait_ms=0 if self._held else LOG_WAIT_MS)
        if held and not self._held:
            log.warning(
                "store=log-held bytes=%d effect=%r hint=%r",
                self._log.stat().st_size,
                "it grows until the reader ends, and counts as store",
                f"fuser -v {self._file}",
            )
        elif self._held and not held:
            log.warning("store=log-released")
        self._held = held

    def _bytes_at_most(self) -> int:
        """Count the log twice: pages that are only there may make the file longer."""
        return self._file.stat().st_size + 2 * self._log.stat().st_size

    def _bytes(self, connection: sqlite3.Connection) -> int:
        return database.bytes_used(connection) + self._log.stat().st_size
