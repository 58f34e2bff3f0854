"""Room on the file system below the store: what is left of it, and when too little is."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from agent.store import database

RESERVE_BYTES = 8 << 20
"""Room that new events do not take: the log may grow to 4 MiB, and the file by what stands in it, so that receipts and
deletes can still be written, and a start can write the log back."""
DISK_FULL = "the disk is full: too little room is left below the store for new events"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_ROOM_HIDDEN = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""What SQLite says where the index of its log finds no room."""


class NoRoomError(database.StoreError):
    """The store cannot be opened before there is more room on its file system."""

    def __init__(self, what: str, bytes_needed: int, bytes_free: int) -> None:
        super().__init__(f"{what}: up to {bytes_needed} bytes of room are needed, and {bytes_free} are free")
        self.bytes_needed = bytes_needed
        self.bytes_free = bytes_free


def free_bytes(path: Path) -> int:
    """Return what the file system has left for us where this file lies."""
    room = os.statvfs(path.parent)
    return room.f_bavail * room.f_frsize


def is_low(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether too little room is left for new events, the free pages of the store's own file included."""
    free = free_bytes(path)
    return free < RESERVE_BYTES and free + database.free_pages(connection)[0] * database.PAGE_BYTES < RESERVE_BYTES


def lacks_room(error: BaseException, path: Path) -> bool:
    """Whether an error means that the file system below this file is full."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    if not isinstance(error, sqlite3.Error):
        return False
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary == sqlite3.SQLITE_FULL or (primary in _NO_ROOM_HIDDEN and free_bytes(path) < RESERVE_BYTES)
