"""A Delta table whose commits hold rows together with the offsets that they came from."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from cloud.delta import last_versions, log_cleaning
from cloud.delta.history import DeltaHistory
from cloud.delta.log_cleaning import LogCleaner
from cloud.errors import StopError
from cloud.runtime import disk, jvm
from cloud.runtime.disk import FlushedFolders
from cloud.table.commits import Commit, to_json
from cloud.table.lake_table import LakeTable

_CHANGE_FEED, _LOG = "delta.enableChangeDataFeed", "delta.logRetentionDuration"
_OF_CHANGE_FEED = re.compile(r"interval \d+ seconds")
"""The length of the log as an earlier start has set it."""
_SINGLE_DRIVER_SCHEMES = ("s3", "s3a", "s3n")
"""Schemes for which Delta's own log store excludes concurrent writers only within one process. Of two commits under one
version the later replaces the earlier, whose rows are lost."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The form in which a table is created."""

    schema: StructType
    partitioned_by: Sequence[str]
    properties: dict[str, str]
    writer: str
    """The txnAppId of all commits, by which only one of two writers can continue."""
    keeps_rows: bool
    """Whether rows that another program removes are lost, since the table's offsets state that it has them."""


class DeltaTable(LakeTable):
    """A table in a folder; opening it raises StopError where a power cut has taken a part of its last versions."""

    format = "Delta"

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        super().__init__(spark, path, f"delta.{jvm.quoted(path)}")
        self.path = path
        self._layout = layout
        self._history = DeltaHistory(spark, path)
        last_versions.check(spark, path)
        self._create()
        self.widen(layout.schema)
        detail = self._detail()
        self.id = detail["id"]
        # Those that are not set, in a table that another program has created.
        self._set({name: value for name, value in layout.properties.items() if name not in detail["properties"]})
        self._log_cleaner = LogCleaner(spark, path)

    @staticmethod
    def exists(spark: SparkSession, path: str) -> bool:
        """Whether the folder has a Delta table, of at least one version."""
        return bool(jvm.delta_log(spark, path).tableExists())

    def last_commit(self) -> Commit | None:
        last = self._history.last()
        return last.commit if last else None

    def check(self) -> None:
        self._check_versions()
        self.check_rows()
        self._check_id(self._detail()["id"])

    def check_rows(self) -> None:
        """Raise StopError where another program has removed rows since this checkpoint's last commit."""
        if self._layout.keeps_rows and (removal := self._history.removal()) is not None:
            raise self._removed(removal)

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self.path)

    def new_rows(self) -> tuple[Commit, DataFrame] | None:
        found = self._history.files_of_batch()
        if found is None or not found[1]:
            return None
        commit, files = found
        paths = [f"{self.path}/{name}" for name in files]
        if gone := [path for path in paths if not jvm.exists(self._spark, path)]:
            raise self._compacted(gone[0], commit)
        read = self._spark.read.schema(self.rows().schema).option("basePath", self.path)
        return commit, read.parquet(*map(jvm.literal, paths))

    def feed_changes(self, seconds: int) -> None:
        """Record changes, and keep the log for a time, unless its owner has set another."""
        present, wanted = self._detail()["properties"], {_CHANGE_FEED: "true", _LOG: f"interval {seconds} seconds"}
        found = present.get(_LOG, "")
        if found != log_cleaning.PROPERTIES[_LOG] and not _OF_CHANGE_FEED.fullmatch(found):
            wanted.pop(_LOG)
        self._set({name: value for name, value in wanted.items() if present.get(name) != value})

    def append(self, rows: DataFrame, commit: Commit) -> int:
        self._check_versions()
        (
            rows.write.format("delta")
            .mode("append")
            .option("txnAppId", self._layout.writer)
            .option("txnVersion", commit.version)
            .option("userMetadata", to_json(commit))
            .save(self.path)
        )
        # Delta silently skips a write under an older or equal version.
        written = self._history.find(commit)
        if written is None:
            raise self._claimed(self._history.last())
        if written.commit != commit:
            raise self._copied(commit)
        if self._history.may_lack_rows:
            self.check_rows()
        self._check_id(str(jvm.delta_log(self._spark, self.path).unsafeVolatileSnapshot().metadata().id()))
        self._log_cleaner.clean_if_due()
        return written.rows

    def claim(self, commit: Commit) -> None:
        self.append(self._spark.createDataFrame([], self._layout.schema), commit)

    def _check_versions(self) -> None:
        """Raise StopError where the table has lost versions, since an append would create it anew, or continue it."""
        if (version := self._history.lost_version()) is not None:
            raise StopError(
                f"table {self.path}: its log no longer has version {version}, which this job has read. Its folder was "
                "removed or replaced by an older copy, or its disk unmounted, while the job ran. Nothing more is "
                "written or receipted. If the folder is still somewhere, put it back, or mount the disk, and start "
                "again. With an older copy, start with a new checkpoint, which reads again what the copy lacks. "
                f"Without any, start with a new table, a new checkpoint and --succeeds {self.id}"
            )

    def _detail(self) -> Row:
        return self._spark.sql(f"DESCRIBE DETAIL {self._in_sql}").select("id", "properties").collect()[0]

    def compact(self) -> tuple[int, int]:
        with FlushedFolders(disk.local_folders(self._spark, [self.path])) as folder:
            metrics = self._spark.sql(f"OPTIMIZE {self._in_sql}").select("metrics").collect()[0]["metrics"]
            folder.flush()
        return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])

    def vacuum(self, retain_seconds: int) -> None:
        self._spark.sql(f"VACUUM {self._in_sql} RETAIN {math.ceil(retain_seconds / 3600)} HOURS").collect()

    def _create(self) -> None:
        """Create the table where there is none.

        Not by CREATE TABLE: where an earlier job was killed while it created the table, there is a log without a
        version, which IF NOT EXISTS takes for a table, and CREATE for another program's folder.
        """
        nothing = self._spark.createDataFrame([], self._layout.schema).write.format("delta").mode("ignore")
        nothing.partitionBy(*self._layout.partitioned_by).options(**self._layout.properties).save(self.path)

    def _set(self, properties: Mapping[str, str]) -> None:
        if properties:
            pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            self._spark.sql(f"ALTER TABLE {self._in_sql} SET TBLPROPERTIES ({pairs})")


def excludes_writers(spark: SparkSession, path: str) -> bool:
    """Whether concurrent commits of two processes to a table cannot replace each other."""
    scheme = urlsplit(path).scheme or jvm.default_scheme(spark)
    chosen = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    settings = spark.sparkContext.getConf()
    return scheme not in _SINGLE_DRIVER_SCHEMES or any(settings.contains(name) for name in chosen)
