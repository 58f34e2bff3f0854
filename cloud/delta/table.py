"""A Delta table that is the truth about itself: rows and the offsets that they came from, in one commit."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cloud.delta.history import DeltaHistory
from cloud.errors import StopError
from cloud.platform import jvm
from cloud.table.commits import Commit, to_json

LOG_CLEANED_SECONDS = 1800.0
"""How often a job removes what its table's log may forget."""
_SINGLE_DRIVER_SCHEMES = ("s3", "s3a", "s3n")
"""Where Delta's own log store lets only the writers of one process exclude one another: of two commits under one
version, the later replaces the earlier, and its rows are gone."""


class Table(Protocol):
    """Where rows go: a whole batch with its commit, or nothing of it."""

    @property
    def id(self) -> str:
        """The table's own id, another one after it was dropped and made anew."""

    def last_commit(self) -> Commit | None:
        """Return the latest commit of a job; None where there was none yet."""

    def append(self, rows: DataFrame, commit: Commit) -> int:
        """Commit the rows and say how many.

        Raise StopError where another job has claimed the table since, or somebody has taken rows away.
        """

    def check_rows(self) -> None:
        """Raise StopError where somebody has taken rows away since this checkpoint's last commit."""

    def rows(self) -> DataFrame:
        """Return what the table holds now; later commits do not change the frame."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is made when it is not there yet."""

    schema: StructType
    partitioned_by: Sequence[str]
    properties: dict[str, str]
    writer: str
    """The txnAppId that all commits share: of two writers only one may go on."""
    keeps_rows: bool
    """Whether rows that somebody takes away would never come back: the table's offsets say that it has them."""


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
        self._log_cleaned_at = time.monotonic()

    @staticmethod
    def exists(spark: SparkSession, path: str) -> bool:
        """Whether there is a table."""
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

    def check_rows(self) -> None:
        """Raise StopError where somebody has taken rows away since this checkpoint's last commit."""
        if self._layout.keeps_rows and (removal := self._history.removal()) is not None:
            raise StopError(
                f"table {self._path}: version {removal.version}, a {removal.operation} by somebody else, has taken "
                "rows away that were read and receipted. Start with a new checkpoint: with --read-again to get back "
                "what the topic still has of them, or without it to leave them out"
            )

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
        if self._history.may_lack_rows:
            self.check_rows()
        if time.monotonic() - self._log_cleaned_at > LOG_CLEANED_SECONDS:
            self.clean_log()
        return written.rows

    def clean_log(self) -> None:
        """Remove from the log what is older than its retention.

        Every commit lists the log's whole folder. Delta itself forgets whole days only, and a day of small batches
        makes a commit slower by seconds.
        """
        self._log_cleaned_at = time.monotonic()
        delta: Any = jvm.classes(self._spark).org.apache.spark.sql.delta
        session: Any = self._spark
        log = delta.DeltaLog.forTable(session._jsparkSession, jvm.hadoop_path(self._spark, self._path))
        snapshot = log.unsafeVolatileSnapshot()
        if log.enableExpiredLogCleanup(snapshot.metadata()):
            retention = jvm.classes(self._spark).scala.Option.empty()  # the table's own
            log.cleanUpExpiredLogs(snapshot, retention, delta.TruncationGranularity.MINUTE())

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
            .option("userMetadata", to_json(last.commit, self._history.kept()))
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
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in self._layout.schema)
        partitioned = (
            f"PARTITIONED BY ({', '.join(self._layout.partitioned_by)})" if self._layout.partitioned_by else ""
        )
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in self._layout.properties.items())
        properties = f"TBLPROPERTIES ({pairs})" if pairs else ""
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._name} ({columns}) USING delta {partitioned} {properties}")


def excludes_writers(spark: SparkSession, path: str) -> bool:
    """Whether of two processes that commit to a table at once one has to try again."""
    scheme = urlsplit(path).scheme
    chosen = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    settings = spark.sparkContext.getConf()
    return scheme not in _SINGLE_DRIVER_SCHEMES or any(settings.contains(name) for name in chosen)
