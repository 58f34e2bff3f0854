"""The exact index that the filters are compared with: a B-tree of SQLite on disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

_SEEN = "SELECT 1 FROM seen WHERE key = ?"
_KEEP = "INSERT OR IGNORE INTO seen VALUES (?)"


class ExactIndex:
    """Fingerprints in one table, written in one transaction, so that flushes are not measured."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> Self:
        self._file.unlink(missing_ok=True)
        self._connection = sqlite3.connect(self._file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._connection.execute("BEGIN")
        self._keys = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._file.unlink(missing_ok=True)

    def add(self, keys: npt.NDArray[np.void]) -> int:
        """Look up and add every key; return the number of those that were known."""
        return self.add_behind_filter(keys, np.ones(len(keys), bool))

    def add_behind_filter(self, keys: npt.NDArray[np.void], hits: npt.NDArray[np.bool_]) -> int:
        """Look up only the filter's hits, and add all keys; return the number of those that were known."""
        execute = self._connection.execute
        known = 0
        for key, is_hit in zip(keys.tolist(), hits.tolist(), strict=True):
            if is_hit and execute(_SEEN, (key,)).fetchone() is not None:
                known += 1
            else:
                self._keys += execute(_KEEP, (key,)).rowcount
        return known

    def bytes_per_key(self) -> float:
        """Return the file's size divided by the number of keys."""
        (pages,), (size,) = (self._connection.execute(f"PRAGMA page_{what}").fetchone() for what in ("count", "size"))
        return float(pages * size / max(1, self._keys))
