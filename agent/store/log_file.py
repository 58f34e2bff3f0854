"""The write-ahead log as a file: cut off behind its last commit, and watched, since others can take it away."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from agent.store.database import LOG_FRAME_BYTES, LOG_HEADER_BYTES, DamagedStoreError, StoreError
from agent.store.pages import is_log_header


class LogFile:
    """The log of the one connection that writes; runs on the writer's thread alone."""

    def __init__(self, path: Path) -> None:
        self._path = Path(f"{path}-wal")
        self._file: int | None = None
        self._header = b""
        """As it was last found to be right."""

    def cut(self, connection: sqlite3.Connection) -> None:
        """Cut off what stands behind the last commit, on the medium, too; waits for no reader.

        A transaction that fails leaves its frames there. The next one, if smaller, would overwrite only their
        beginning, and what follows could be taken for newer pages (decision 29).
        """
        frames: int = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        if frames < 0:
            raise StoreError(f"{self._path}: another program writes to the store")
        size = LOG_HEADER_BYTES + frames * LOG_FRAME_BYTES if frames else 0
        self.close()
        self._file = os.open(self._path, os.O_RDWR)
        if os.fstat(self._file).st_size > size:
            os.ftruncate(self._file, size)
        os.fsync(self._file)

    def check(self, *, written: bool) -> None:
        """Raise DamagedStoreError where the log that a transaction was written to is no longer the store's.

        SQLite does not look: what it commits to a log that was removed or truncated is gone at the next start.
        """
        assert self._file is not None
        header = os.pread(self._file, LOG_HEADER_BYTES, 0)
        if header != self._header and (header or written):
            self._header = header
            if not self.is_whole():
                raise DamagedStoreError(f"{self._path}: truncated or overwritten while the store was open")
        if not self._is_in_place():
            raise DamagedStoreError(f"{self._path}: removed or replaced while the store was open")

    def is_whole(self) -> bool:
        """Whether the log began as SQLite writes it when it was last looked at."""
        return is_log_header(self._header)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._header = None, b""

    def _is_in_place(self) -> bool:
        assert self._file is not None
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False
