"""Damage: how the store tells a file that is not what was written from a disk that fails."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.store.database import FILE_NAME, DamagedStoreError

_FILES = (FILE_NAME, f"{FILE_NAME}-wal")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""A constraint that is violated: memory and file disagree, which takes an opening."""
_UNREADABLE = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
"""A bad sector (CORRUPTFS at the opening of a file): a salvage of what turns out to be readable loses nothing."""
_WRONG_SCHEMA = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
"""Such as `no such table`: our statements fit the schema that we wrote."""


class DamagedEventError(Exception):
    """Events of one commit are not what was written; their neighbours may well be."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"events at positions {first} to {last}: the checksum does not match")
        self.first = first
        self.last = last


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
