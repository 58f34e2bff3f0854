"""A Delta table that is the truth about itself: rows and the offsets that they came from, in one commit."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cloud import jvm
from cloud.commits import Commit, to_json
from cloud.delta_history import DeltaHistory
from cloud.errors import StopError


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
        self._history = DeltaHistory(spark, path)
        self._create()
        self._id: str = spark.sql(f"DESCRIBE DETAIL {self._name}").select("id").collect()[0]["id"]

    @staticmethod
    def exists(spark: SparkSession, path: str) -> bool:
        """Tell whether there is a table."""
        log = jvm.hadoop_path(spark, f"{path}/_delta_log")
        return bool(jvm.file_system(spark, path).exists(log))

    @property
    def id(self) -> str:
        return self._id

    @property
    def path(self) -> str:
        """The folder."""
        return self._path

    def last_commit(self) -> Commit | None:
        last = self._history.last()
        return last.commit if last else None

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
        written = self._history.find(commit)
        if written is None:
            last = self._history.last()
            raise StopError(f"table {self._path}: another job has claimed it since ({last}); this one ends for good")
        return written.rows

    def keep_last_commit(self, after_seconds: int) -> bool:
        """Write the job's last commit once more, without rows, where it is so old; the log forgets what is older.

        A job may commit at the same time: of commits that were kept, and those around them, the highest counts.
        """
        last = self._history.last()
        if last is None or time.time() - last.moment < after_seconds:
            return False
        nothing = self._spark.createDataFrame([], self._layout.schema)
        (
            nothing.write.format("delta")
            .mode("append")
            # Delta leaves out a commit that holds nothing at all. Not the job's writer: its next batch would conflict.
            .option("txnAppId", f"{self._layout.writer}-kept")
            .option("txnVersion", time.time_ns())
            .option("userMetadata", to_json(last.commit, is_kept=True))
            .save(self._path)
        )
        return True

    def compact(self) -> tuple[int, int]:
        """Make few large files of many small ones, and count both."""
        metrics = self._spark.sql(f"OPTIMIZE {self._name}").select("metrics").collect()[0]["metrics"]
        return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])

    def vacuum(self, retain_seconds: int) -> None:
        """Remove files that no commit since then refers to."""
        self._spark.sql(f"VACUUM {self._name} RETAIN {math.ceil(retain_seconds / 3600)} HOURS").collect()

    def _create(self) -> None:
        schema = self._layout.schema
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
        partitioned = (
            f"PARTITIONED BY ({', '.join(self._layout.partitioned_by)})" if self._layout.partitioned_by else ""
        )
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in self._layout.properties.items())
        properties = f"TBLPROPERTIES ({pairs})" if pairs else ""
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING delta {partitioned} {properties}")
        has = set(self.rows().columns)
        if new := [f"{field.name} {field.dataType.simpleString()}" for field in schema if field.name not in has]:
            self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({', '.join(new)})")
