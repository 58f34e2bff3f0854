"""The errors of the store, and which errors mean a damaged file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.store.layout import FILE_NAME

_FILES = (FILE_NAME, f"{FILE_NAME}-wal")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""CONSTRAINT: memory and file disagree, which only a new opening can resolve."""
_UNREADABLE = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})
"""A bad sector (CORRUPTFS at the opening of a file): where all is readable after all, a salvage loses nothing."""
_WRONG_SCHEMA = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
"""Such as `no such table`: the statements fit the schema that was written."""


class StoreError(Exception):
    """The store cannot do what was requested; the message contains what to do."""


class DamagedStoreError(StoreError):
    """The file differs from what was written: the next opening salvages the readable part into a new one."""


class DiskFullError(StoreError):
    """The store cannot be opened before there is more space on its file system."""

    def __init__(self, what: str, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(f"{what}: up to {needed_bytes} bytes are needed, and {free_bytes} are free")
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class UnknownOutcomeError(StoreError):
    """A COMMIT failed, and may be on disk or not: the store continues under a new epoch."""


class DamagedEventError(StoreError):
    """Events of one commit differ from what was written; their neighbours may be intact."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__(f"events at positions {first} to {last}: the checksum does not match")
        self.first = first
        self.last = last


FAILURES = (sqlite3.Error, StoreError, OSError)
"""All errors that a call of the store can raise because of its file or its disk."""


def is_damage(error: BaseException, *, opening: bool = False) -> bool:
    """Whether an error means a damaged file; at the opening also an error of the schema."""
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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise damage that SQLite finds within the block as DamagedStoreError, which names the store's file."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_damage(error, opening=True):
            raise
        raise DamagedStoreError(f"{path}: {error}") from error
