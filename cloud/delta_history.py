"""Our commits in the log of a Delta table: whole by DESCRIBE HISTORY, and then on, file by file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row, SparkSession

from cloud import jvm
from cloud.commits import Commit, is_kept, parse
from cloud.errors import StopError

_PAGES = (1, 100, None)
"""How many commits to look back for one of ours; None: all that the log still has."""
_FOLLOWED_MAX = 100
"""So many files are read one by one; of more, the history is looked up again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit of ours in the table's log."""

    commit: Commit
    rows: int
    moment: float
    """When it was written, in seconds since 1970 UTC."""


class DeltaHistory:
    """Which commit of ours is the highest."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._seen: int | None = None
        """The table's version up to which the log was read; None before it was."""
        self._highest: Entry | None = None

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

    def find(self, commit: Commit) -> Entry | None:
        """Give a commit's entry where it is the highest; None where it is not there, or another one has come above it.

        Reads what has been written since the last look: a look at the whole history takes Spark a fifth of a second.
        """
        self._follow()
        if self._highest is None or not self._highest.commit.is_by_same(commit):
            self.last()
        found = self._highest
        return found if found is not None and found.commit.is_by_same(commit) else None

    def _follow(self) -> None:
        """Read the files of later versions, for as long as there is one; their names and lines are Delta's protocol."""
        for _ in range(_FOLLOWED_MAX):
            if self._seen is None:
                return
            text = jvm.read_text(self._spark, f"{self._path}/_delta_log/{self._seen + 1:020d}.json")
            if text is None:
                return
            self._seen += 1
            if entry := _read_file(text):
                self._highest = _highest([self._highest, entry] if self._highest else [entry])


def _highest(entries: list[Entry]) -> Entry:
    return max(entries, key=lambda entry: entry.commit.version)


def _read_row(row: Row, commit: Commit) -> Entry:
    return Entry(commit, _rows(row["operationMetrics"]), row["timestamp"].timestamp())


def _read_file(text: str) -> Entry | None:
    """Read a version's file: one action in a line, of which commitInfo tells who wrote it."""
    for line in text.splitlines():
        if line.startswith('{"commitInfo"'):
            info = json.loads(line)["commitInfo"]
            commit = parse(info.get("userMetadata"))
            return (
                None if commit is None else Entry(commit, _rows(info.get("operationMetrics")), info["timestamp"] / 1000)
            )
    return None


def _rows(metrics: Any) -> int:
    return int((metrics or {}).get("numOutputRows", 0))
