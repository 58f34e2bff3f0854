"""Our commits in the log of a Delta table: whole by DESCRIBE HISTORY, and then on, file by file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from cloud import jvm
from cloud.commits import CLAIM_ONLY, Commit, is_kept, parse
from cloud.errors import StopError

_PAGES = (1, 100, None)
"""How many commits to look back for one of ours; None: all that the log still has."""
_LOOKED_BACK_MAX = 100
"""How many commits to look back for one that takes rows away; between two of ours there are a few of maintenance."""
_FOLLOWED_MAX = 100
"""So many files are read one by one; of more, the history is looked up again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit of ours in the table's log."""

    commit: Commit
    rows: int
    moment: float
    """When it was written, in seconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A commit of somebody else that took rows away."""

    version: int
    operation: str


class DeltaHistory:
    """Which commit of ours is the highest."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._seen: int | None = None
        """The table's version up to which the log was read; None before it was."""
        self._highest: Entry | None = None
        self._has_new_removal = False

    def last(self) -> Entry | None:
        """Look the highest up; None where the log has none from its beginning on, StopError where it is cut off."""
        name = self._path.replace("`", "``")
        for page in _PAGES:
            limit = "" if page is None else f" LIMIT {page}"
            history = self._spark.sql(f"DESCRIBE HISTORY delta.`{name}`{limit}")
            rows = history.select("version", "timestamp", "userMetadata", "operationMetrics").collect()
            found = [_read_row(row, commit) for row in rows if (commit := parse(row["userMetadata"]))]
            if found and not (page == 1 and is_kept(rows[0]["userMetadata"])):
                self._seen, self._highest = rows[0]["version"], _highest(found)
                return self._highest
            if not found and rows and rows[-1]["version"] == 0:
                self._seen, self._highest = rows[0]["version"], None
                return None
        raise StopError(
            f"table {self._path}: its log no longer reaches back to a commit of ours, so its offsets are lost"
        )

    def removal(self) -> Removal | None:
        """Return the latest commit that took rows away behind our last one, or while that was being written.

        A job that finds one ends at once, so it is never further back; and a new checkpoint's claim has seen it.
        """
        name = self._path.replace("`", "``")
        columns = ("version", "operation", "operationParameters", "operationMetrics", "userMetadata")
        history = self._spark.sql(f"DESCRIBE HISTORY delta.`{name}` LIMIT {_LOOKED_BACK_MAX}").select(*columns)
        ours = 0
        for row in history.orderBy(F.desc("version")).collect():
            if (commit := parse(row["userMetadata"])) is None or is_kept(row["userMetadata"]):
                if _removes_rows(row.asDict()):
                    return Removal(row["version"], row["operation"])
            else:
                ours += 1
                if ours == 2 or commit.batch == CLAIM_ONLY:
                    return None
        return None

    def find(self, commit: Commit) -> Entry | None:
        """Give a commit's entry where it is the highest; None where it is not there, or another one has come above it.

        Reads what has been written since the last look: a look at the whole history takes Spark a fifth of a second.
        """
        self._follow()
        if self._highest is None or not self._highest.commit.is_by_same(commit):
            self.last()
        found = self._highest
        return found if found is not None and found.commit.is_by_same(commit) else None

    @property
    def has_new_removal(self) -> bool:
        """Whether somebody has taken rows away between the last two looks."""
        return self._has_new_removal

    def _follow(self) -> None:
        """Read the files of later versions, for as long as there is one; their names and lines are Delta's protocol."""
        self._has_new_removal = False
        for _ in range(_FOLLOWED_MAX):
            if self._seen is None:
                return
            text = jvm.read_text(self._spark, f"{self._path}/_delta_log/{self._seen + 1:020d}.json")
            if text is None:
                return
            self._seen += 1
            info = _read_info(text)
            if info is None:
                continue
            if entry := _entry(info):
                self._highest = _highest([self._highest, entry] if self._highest else [entry])
            elif _removes_rows(info):
                self._has_new_removal = True


def _highest(entries: list[Entry]) -> Entry:
    return max(entries, key=lambda entry: entry.commit.version)


def _read_row(row: Row, commit: Commit) -> Entry:
    return Entry(commit, _rows(row["operationMetrics"]), row["timestamp"].timestamp())


def _read_info(text: str) -> dict[str, Any] | None:
    """Read a version's file: one action in a line, of which commitInfo tells who wrote it."""
    for line in text.split("\n"):  # JSON's strings may hold other ends of lines as they are
        if line.startswith('{"commitInfo"'):
            info: dict[str, Any] = json.loads(line)["commitInfo"]
            return info
    return None


def _entry(info: dict[str, Any]) -> Entry | None:
    commit = parse(info.get("userMetadata"))
    return None if commit is None else Entry(commit, _rows(info.get("operationMetrics")), info["timestamp"] / 1000)


def _removes_rows(info: Mapping[str, Any]) -> bool:
    """Whether an operation, as Delta names it, takes rows out of the table."""
    operation, parameters, metrics = info["operation"], info["operationParameters"], info.get("operationMetrics")
    if operation in ("WRITE", "STREAMING UPDATE"):
        return bool(parameters.get("mode") == "Overwrite")
    if operation == "MERGE":
        return int((metrics or {}).get("numTargetRowsDeleted", 0)) > 0
    return operation in ("RESTORE", "DELETE", "TRUNCATE") or "REPLACE TABLE" in operation


def _rows(metrics: Any) -> int:
    return int((metrics or {}).get("numOutputRows", 0))
