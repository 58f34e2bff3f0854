"""The job's commits in the log of a Delta table, read by DESCRIBE HISTORY and then file by file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cloud.errors import StopError
from cloud.runtime import jvm
from cloud.table.commits import CLAIM_ONLY, Commit, parse

_PAGES = (1, 100, None)
"""The numbers of commits searched for one of the job, one after the other; None for the whole log."""
_FOLLOWED_MAX = 100
"""The number of files that are read one by one; if there are more, the history is queried again."""
_COLUMNS = ("version", "operation", "operationParameters", "operationMetrics", "userMetadata")
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


class DeltaHistory:
    """Finds the job's highest commit, and removals of rows by others."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._seen: int | None = None
        """The table's version up to which the log was read; None at first."""
        self._highest: LogEntry | None = None
        self.may_lack_rows = False
        """Whether another program may have removed rows between the last two calls of `find`."""

    def last(self) -> LogEntry | None:
        """Return the highest commit, from the history; None where a complete log has none.

        Raise StopError where the log has none, and no longer has its beginning.
        """
        for limit in _PAGES:
            rows = self._newest(limit)
            parsed = ((parse(row["userMetadata"]), row["operationMetrics"]) for row in rows)
            found = [LogEntry(commit, _rows(metrics)) for commit, metrics in parsed if commit]
            if found:
                self._seen, self._highest = rows[0]["version"], _highest(found)
                return self._highest
            if rows and rows[-1]["version"] == 0:
                self._seen, self._highest = rows[0]["version"], None
                return None
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
        for row in self._newest_first():
            commit = parse(row["userMetadata"])
            if commit is None:
                if self._removes_rows(row.asDict(), row["version"]):
                    return f"version {row['version']}, a {row['operation'] or 'change'}"
            else:
                ours += 1
                if ours == 2 or commit.batch == CLAIM_ONLY:
                    return None
        return None

    def files_of_batch(self) -> tuple[Commit, list[str]] | None:
        """Return the latest commit of a batch that was read or made, and the files that it has added.

        None where there is none; a claim is no batch.
        """
        for version in range(-1 if self._seen is None else self._seen, -1, -1):
            if (text := self._file(version)) is None:
                return None
            found = Version.read(text)
            if (commit := found.commit) is not None and commit.batch != CLAIM_ONLY:
                return commit, list(found.added)
        return None

    def lost_version(self) -> int | None:
        """Return the version up to which the log was read, where the log has ended below it since; otherwise None.

        An entry that expired was removed behind later ones.
        """
        if self._seen is None or jvm.exists(self._spark, self._entry_path(self._seen)):
            return None
        is_there = jvm.exists(self._spark, f"{self._path}/_delta_log")
        return None if is_there and self._newest(1)[0]["version"] >= self._seen else self._seen

    def find(self, commit: Commit) -> LogEntry | None:
        """Return a commit's entry where it is the highest; None where it is absent, or another one is higher.

        Reads only the files written since the last call, as the history takes Spark a fifth of a second.
        """
        self._follow()
        if self._highest is None or not self._highest.commit.is_by_same(commit):
            self.last()
            self.may_lack_rows = True  # the versions between were not checked
        found = self._highest
        return found if found is not None and found.commit.is_by_same(commit) else None

    def _follow(self) -> None:
        """Read the files of later versions."""
        self.may_lack_rows = False
        for _ in range(_FOLLOWED_MAX):
            if self._seen is None or (text := self._file(self._seen + 1)) is None:
                return
            self._seen += 1
            found = Version.read(text)
            if (commit := found.commit) is not None:
                entry = LogEntry(commit, _rows(found.info.get("operationMetrics")))
                self._highest = _highest([self._highest, entry] if self._highest else [entry])
            elif self._removes_rows(found.info, self._seen):
                self.may_lack_rows = True

    def _removes_rows(self, info: Mapping[str, Any], version: int) -> bool:
        if (removes := _removes_rows(info)) is not None:
            return removes
        removed = Version.read(self._file(version) or "").removed  # or its rows are only rewritten
        return any(file.get("dataChange", True) for file in removed.values())

    def _file(self, version: int) -> str | None:
        return jvm.read_text(self._spark, self._entry_path(version))

    def _entry_path(self, version: int) -> str:
        return f"{self._path}/_delta_log/{version:020d}.json"

    def _newest_first(self) -> Iterator[Row]:
        """Yield the history's rows from the newest on, page by page."""
        below = None
        for limit in _PAGES[1:]:
            for row in self._newest(limit):
                if below is None or row["version"] < below:
                    below = row["version"]
                    yield row

    def _newest(self, limit: int | None) -> list[Row]:
        pages = "" if limit is None else f" LIMIT {limit}"
        history = self._spark.sql(f"DESCRIBE HISTORY delta.{jvm.quoted(self._path)}{pages}")
        return history.select(*_COLUMNS).orderBy(F.desc("version")).collect()


def _highest(entries: list[LogEntry]) -> LogEntry:
    return max(entries, key=lambda entry: entry.commit.version)


def _removes_rows(info: Mapping[str, Any]) -> bool | None:
    """Whether an operation removes rows from the table; None where its description does not determine it."""
    operation, parameters = info.get("operation") or "", info.get("operationParameters") or {}
    metrics = info.get("operationMetrics") or {}
    if operation in _REMOVE_ROWS or "REPLACE TABLE" in operation:
        return True
    if operation in _KEEP_ROWS:
        return False
    if operation in ("WRITE", "STREAMING UPDATE") and "mode" in parameters:
        return bool(parameters["mode"] == "Overwrite")
    if operation == "MERGE":
        deleted = [int(metrics[name]) for name in _DELETED if name in metrics]
        return any(deleted) if deleted else None
    return None


def _rows(metrics: Any) -> int:
    return int((metrics or {}).get("numOutputRows", 0))
