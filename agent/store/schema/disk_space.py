"""The space on the file system below the store, and when too little is left."""

import errno
import os
import resource
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from agent.store import layout
from agent.store.layout import PAGE_BYTES
from agent.store.schema import database

RESERVE_BYTES = 8 << 20
"""Space that new events do not take: the log may grow to 4 MiB, and the file by as much.

So receipts and deletes can still be written, and a start can write the log back.
"""
BOUND_RESERVE_BYTES_MAX = 16 << 20
"""The same within `store.max_bytes`."""
BOUND_RESERVE_SHARE = 0.1
LOG_RESERVE_BYTES = 4 << 20
"""Space that is left beside what the log will add to the file, while a reader keeps the log growing."""
LOG_BYTES_EXPECTED = 16 << 20
"""Four times the size to which the log grows where no reader holds it."""
DISK_FULL = "the disk is full: too little space is left for new events"
LOG_NEEDS_SPACE = "the disk is full: the remaining space is needed to write the store's log back"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_SPACE_HIDDEN = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""SQLite's errors where it can create no file, and where a quota is reached (decision 30)."""
_PROBE_BYTES = 32 << 10
"""The least size of the log's index."""


def bound(max_bytes: int) -> int:
    """Return the size from which on a store takes no new events."""
    return max_bytes - min(BOUND_RESERVE_BYTES_MAX, int(max_bytes * BOUND_RESERVE_SHARE))


def free_bytes(path: Path) -> int:
    """Return by how many bytes this file or its log may grow, by file system and ulimit."""
    status = os.statvfs(path.parent)
    left = status.f_bavail * status.f_frsize
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY:
        return left
    size = path.stat().st_size if path.exists() else 0
    return min(left, max(0, limit - max(size, log_bytes(path))))


@dataclass(frozen=True, slots=True)
class Space:
    """The space left for the store on its file system, and what its log will still take of it."""

    free_bytes: int
    log_bytes: int
    growth_bytes: int
    """By how much the file grows when the log is written back: that space counts as used."""
    free_in_file_bytes: int
    """Free pages of the store's own file: space for new events while the log is written back."""

    @property
    def is_log_blocked(self) -> bool:
        """Whether the log has grown so large that a reader must be preventing its restart."""
        return self.log_bytes > LOG_BYTES_EXPECTED

    @property
    def may_write_back(self) -> bool:
        """Whether the file can take the whole content of the log."""
        return self.free_bytes >= self.growth_bytes

    def missing_bytes(self, arriving_bytes: int = 0) -> int:
        """Return the space that is missing for new events of this size, which go into the log, then into the file."""
        usable = self.free_bytes + (0 if self.is_log_blocked else self.free_in_file_bytes)
        missing = RESERVE_BYTES + 2 * arriving_bytes + self.growth_bytes - usable
        return max(0, missing, self.growth_bytes - self.free_bytes)

    @property
    def endangers_log(self) -> bool:
        """Whether another transaction could take the space that the log needs to be written back."""
        grows = self.growth_bytes > 0 or self.is_log_blocked
        return (
            self.log_bytes > layout.LOG_BYTES_KEPT
            and grows
            and (self.free_bytes < self.growth_bytes + LOG_RESERVE_BYTES)
        )


def space(path: Path, connection: sqlite3.Connection) -> Space:
    """Return the space of a store, for its writing connection outside a transaction."""
    free_pages, pages = database.free_pages(connection)
    return Space(
        free_bytes(path),
        log_bytes(path),
        max(0, pages * PAGE_BYTES - path.stat().st_size),
        free_pages * PAGE_BYTES,
    )


def is_ample(path: Path, arriving_bytes: int = 0) -> bool:
    """Whether there is enough space, whatever the size of the log according to SQLite."""
    return free_bytes(path) >= RESERVE_BYTES + 2 * arriving_bytes + log_bytes(path)


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log; 0 where there is none."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def is_full(error: BaseException, path: Path) -> bool:
    """Whether an error means that the file system of this file is full, or a quota on it reached."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    if not isinstance(error, sqlite3.Error):
        return False
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary == sqlite3.SQLITE_FULL or (primary in _NO_SPACE_HIDDEN and not takes(path, _PROBE_BYTES))


def takes(path: Path, size: int) -> bool:
    """Whether another file of this size fits beside this one: free blocks, a free inode, and no quota.

    Reserves the space to find out, since no system call returns this; writes nothing. Return True on any other error.
    """
    probe = path.with_name(f"{path.name}.probe")
    try:
        with probe.open("wb", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        return error.errno not in _FULL
    finally:
        probe.unlink(missing_ok=True)
    return True
