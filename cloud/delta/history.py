"""The job's commits in the log of a Delta table, read file by file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.runtime import jvm
from cloud.table.commits import CLAIM_ONLY, Commit, parse

_DELETED = ("numTargetRowsDeleted", "num_target_rows_deleted")
"""The rows that a MERGE has deleted, in the spelling of Spark, and in that of delta-rs."""
_REMOVE_ROWS = ("RESTORE", "DELETE", "TRUNCATE")
_KEEP_ROWS = ("UPDATE", "OPTIMIZE")
"""Names of Delta's operations that remove rows, or never do; others are judged by the files that they remove."""


@dataclass(frozen=True, slots=True)
class Version:
    """An entry of the log, whose name and content are defined by Delta's protocol."""

    info: Mapping[str, Any]
    """`commitInfo`, which is optional."""
    added: Mapping[str, Mapping[str, Any]]
    """Files by their paths."""
    removed: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, text: str) -> Version:
        """Read an entry, of one action per line; raise ValueError where it is none."""
        # Not splitlines(), since JSON's strings may contain other line separators.
        actions: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if line.strip()]
        added, removed = (
            {unquote(one[kind]["path"]): one[kind] for one in actions if kind in one} for kind in ("add", "remove")
        )
        return cls(next((one["commitInfo"] for one in actions if "commitInfo" in one), {}), added, removed)

    @property
    def commit(self) -> Commit | None:
        """Return the job's commit; None for that of another program."""
        return parse(self.info.get("userMetadata"))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A commit of the job in the table's log."""

    commit: Commit
    rows: int


@dataclass(slots=True)
class DeltaHistory:
    """Finds the job's highest commit, and removals of rows by others."""

    _spark: SparkSession
    _path: str
    _seen: int | None = None
    """The table's version up to which the log was read; None at first."""
    _highest: LogEntry | None = None
    may_lack_rows: bool = False
    """Whether another program may have removed rows between the last two calls of `find`."""

    def last(self) -> LogEntry | None:
        """Return the latest commit; None where a complete log has none.

        Raise StopError where the log has none, and no longer has its beginning.
        """
        self._seen, self._highest = self._newest(), None
        for version, entry in self._newest_first(self._seen):
            if (commit := entry.commit) is not None:
                self._highest = LogEntry(commit, _rows(entry))
            if self._highest is not None or version == 0:
                return self._highest
        raise StopError(
            f"table {self._path}: its log no longer has a commit of the job, so the table's offsets are lost. Start "
            "with another table and a new checkpoint, and name this table by --succeeds; in place of a quarantine, "
            "another --quarantine is enough. Leave delta.enableExpiredLogCleanup at false"
        )

    def removal(self) -> str | None:
        """Return another program's latest removal of rows after the job's last commit, or while that was being written.

        Earlier ones need no search, since a job that finds one ends, and a new checkpoint's claim acknowledges it.
        """
        ours = 0
        for version, entry in self._newest_first():
            if (commit := entry.commit) is None:
                if _removes_rows(entry):
                    return f"version {version}, a {entry.info.get('operation') or 'change'}"
            else:
                ours += 1
                if ours == 2 or commit.batch == CLAIM_ONLY:
                    return None
        return None

    def files_of_batch(self) -> tuple[Commit, list[str]] | None:
        """Return the latest commit of a batch that was read or made, and the files that it has added.

        None where there is none; a claim is no batch.
        """
        for _, entry in self._newest_first(self._seen):
            if (commit := entry.commit) is not None and commit.batch != CLAIM_ONLY:
                return commit, list(entry.added)
        return None

    def lost_version(self) -> int | None:
        """Return the last version read, where the log has since ended below it; otherwise None.

        An entry that expired was removed behind later ones.
        """
        if self._seen is None or jvm.exists(self._spark, self._entry_path(self._seen)):
            return None
        is_there = jvm.exists(self._spark, f"{self._path}/_delta_log")
        return None if is_there and self._newest() > self._seen else self._seen

    def find(self, commit: Commit) -> LogEntry | None:
        """Return a commit's entry where it is the highest; None where it is absent, or another one is higher.

        Reads only the files written since the last call.
        """
        self.may_lack_rows = False
        while self._seen is not None and (entry := self._entry(self._seen + 1)) is not None:
            self._seen += 1
            if (own := entry.commit) is None:
                self.may_lack_rows |= _removes_rows(entry)
            elif self._highest is None or own.version > self._highest.commit.version:
                self._highest = LogEntry(own, _rows(entry))
        if self._highest is None or not self._highest.commit.is_by_same(commit):
            self.last()
            self.may_lack_rows = True  # the versions between were not checked
        found = self._highest
        return found if found is not None and found.commit.is_by_same(commit) else None

    def _newest_first(self, version: int | None = None) -> Iterator[tuple[int, Version]]:
        """Yield the entries from a version on, by default the newest, as far as the log has them."""
        version = self._newest() if version is None else version
        while (entry := self._entry(version)) is not None:
            yield version, entry
            version -= 1

    def _newest(self) -> int:
        """Return the version of the newest entry."""
        history = self._spark.sql(f"DESCRIBE HISTORY delta.{jvm.quoted(self._path)} LIMIT 1")
        return int(history.select("version").collect()[0][0])

    def _entry(self, version: int) -> Version | None:
        text = jvm.read_text(self._spark, self._entry_path(version))
        return None if text is None else Version.read(text)

    def _entry_path(self, version: int) -> str:
        return f"{self._path}/_delta_log/{version:020d}.json"


def _removes_rows(entry: Version) -> bool:
    info = entry.info
    operation, parameters = info.get("operation") or "", info.get("operationParameters") or {}
    metrics = info.get("operationMetrics") or {}
    if operation in _REMOVE_ROWS or "REPLACE TABLE" in operation:
        return True
    if operation in _KEEP_ROWS:
        return False
    if operation in ("WRITE", "STREAMING UPDATE") and "mode" in parameters:
        return bool(parameters["mode"] == "Overwrite")
    if operation == "MERGE" and (deleted := [int(metrics[name]) for name in _DELETED if name in metrics]):
        return any(deleted)
    return any(file.get("dataChange", True) for file in entry.removed.values())  # or its rows are only rewritten


def _rows(entry: Version) -> int:
    return int((entry.info.get("operationMetrics") or {}).get("numOutputRows", 0))
