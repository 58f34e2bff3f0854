"""A Delta table that is the truth about itself: rows and the offsets that they came from, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cloud.commits import Commit, parse, to_json
from cloud.errors import StopError

_HISTORY_PAGES = (1, 100, None)
"""How many commits to look back for one of ours; None: all that the log still has."""


class Table(Protocol):
    """Where rows go: a whole batch with its commit, or nothing of it."""

    @property
    def id(self) -> str:
        """The table's own id, another one after it was dropped and made anew."""

    def last_commit(self) -> Commit | None:
        """Give the latest commit of a job; None where there was none yet."""

    def append(self, rows: DataFrame, commit: Commit) -> int:
        """Commit the rows and say how many; raise StopError where another job has claimed the table since."""

    def rows(self) -> DataFrame:
        """Give what the table holds now; later commits do not change the frame."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is made when it is not there yet."""

    schema: StructType
    partitioned_by: Sequence[str]
    properties: dict[str, str]
    writer: str
    """The txnAppId that all commits share: of two writers only one may go on."""


class DeltaTable:
    """A `Table` in a folder."""

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        self._spark = spark
        self._path = path
        self._layout = layout
        self._name = f"delta.`{path.replace('`', '``')}`"
        self._create()
        self._id: str = spark.sql(f"DESCRIBE DETAIL {self._name}").select("id").collect()[0]["id"]

    @property
    def id(self) -> str:
        return self._id

    def last_commit(self) -> Commit | None:
        return self._last()[0]

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)

    def append(self, rows: DataFrame, commit: Commit) -> int:
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._layout.writer)
            .option("txnVersion", commit.version)
            .option("userMetadata", to_json(commit))
            .save(self._path)
        )
        # Delta skips a write under an older or equal version without a word.
        last, written = self._last()
        if last is None or not last.is_by_same(commit):
            raise StopError(f"table {self._path}: another job has claimed it since ({last}); this one ends for good")
        return written

    def _create(self) -> None:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self._layout.schema)
        partitioned = (
            f"PARTITIONED BY ({', '.join(self._layout.partitioned_by)})" if self._layout.partitioned_by else ""
        )
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in self._layout.properties.items())
        properties = f"TBLPROPERTIES ({pairs})" if pairs else ""
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING delta {partitioned} {properties}")

    def _last(self) -> tuple[Commit | None, int]:
        """Give the latest commit of ours, and how many rows it wrote."""
        for page in _HISTORY_PAGES:
            limit = "" if page is None else f" LIMIT {page}"
            history = self._spark.sql(f"DESCRIBE HISTORY {self._name}{limit}")
            entries = history.select("version", "userMetadata", "operationMetrics").collect()
            for entry in entries:
                if (commit := parse(entry["userMetadata"])) is not None:
                    return commit, int((entry["operationMetrics"] or {}).get("numOutputRows", 0))
            if entries and entries[-1]["version"] == 0:
                return None, 0
        raise StopError(
            f"table {self._path}: its log no longer reaches back to a commit of ours, so its offsets are lost"
        )
