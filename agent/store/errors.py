"""The errors of the store, and which of all errors mean a damaged file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.store.layout import FILE_NAME

_FILES = (FILE_NAME, f"{FILE_NAME}-wal")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""A constraint that is violated: memory and file disagree, which takes an opening."""
_UNREADABLE = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
"""A bad sector (CORRUPTFS at the opening of a file): a salvage of what turns out to be readable loses nothing."""
_WRONG_SCHEMA = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
"""Such as `no such table`: our statements fit the schema that we wrote."""


class StoreError(Exception):
    """The store cannot do what it was asked to; the message says what to do."""


class DamagedStoreError(StoreError):
    """The file is not what was written: what can be read has to be salvaged into a new one."""


class NoRoomError(StoreError):
    """The store cannot be opened before there is more room on its file system."""

    def __init__(self, what: str, bytes_needed: int, bytes_free: int) -> None:
        super().__init__(f"{what}: up to {bytes_needed} bytes of room are needed, and {bytes_free} are free")
        self.bytes_needed = bytes_needed
        self.bytes_free = bytes_free


class UnknownOutcomeError(StoreError):
    """A COMMIT failed: whether it is on disk is unknown, so the store has to be reopened under a new epoch."""


class DamagedEventError(StoreError):
    """Events of one commit are not what was written; their neighbours may well be."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"events at positions {first} to {last}: the checksum does not match")
        self.first = first
        self.last = last


FAILURES = (sqlite3.Error, StoreError, OSError)
"""All that a call of the store can raise because of its file or its disk."""


def is_damage(error: BaseException, *, opening: bool = False) -> bool:
    """Whether an error means a damaged file; at the opening a wrong schema does, too."""
    if isinstance(error, DamagedStoreError | DamagedEventError):
        return True
    if isinstance(error, FileNotFoundError):
        return Path(str(error.filename)).name in _FILES  # removed under the open store
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "decode to UTF-8" in str(error)
    primary = code & 0xFF
    return primary in _DAMAGED or code in _UNREADABLE or (opening and primary in _WRONG_SCHEMA)
