"""A Delta table whose commits hold rows together with the offsets that they came from."""

from __future__ import annotations

import logging
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
from cloud.table import stops, widening
from cloud.table.commits import Commit, to_json

logger = logging.getLogger(__name__)

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


class DeltaTable:
    """A table in a folder, which takes a whole batch with its commit, or nothing of it.

    Opening it raises StopError where a power cut has taken a part of its last versions.
    """

    def __init__(self, spark: SparkSession, path: str, layout: Layout) -> None:
        self._spark = spark
        self.path = path
        """The folder."""
        self._layout = layout
        self._name = f"delta.`{path.replace('`', '``')}`"
        self._history = DeltaHistory(spark, path)
        last_versions.check(spark, path)
        self._create()
        self.widen(layout.schema)
        detail = self._detail()
        self._id: str = detail["id"]
        # Those that are not set, in a table that another program has created.
        self._set({name: value for name, value in layout.properties.items() if name not in detail["properties"]})
        self._log_cleaner = LogCleaner(spark, path)

    @staticmethod
    def exists(spark: SparkSession, path: str) -> bool:
        """Whether the folder has a Delta table, of at least one version."""
        return bool(jvm.delta_log(spark, path).tableExists())

    @property
    def id(self) -> str:
        """Return the table's id; a table that is dropped and recreated has another."""
        return self._id

    def last_commit(self) -> Commit | None:
        """Return the latest commit of a job; None where there is none yet."""
        last = self._history.last()
        return last.commit if last else None

    def check(self) -> None:
        """Raise StopError where the table is no longer the one that was opened, or has lost versions or rows."""
        self._check_versions()
        self.check_rows()
        self._check_id(self._detail()["id"])

    def check_rows(self) -> None:
        """Raise StopError where another program has removed rows since this checkpoint's last commit."""
        if self._layout.keeps_rows and (removal := self._history.removal()) is not None:
            raise stops.removed(self.path, f"version {removal.version}, a {removal.operation}")

    def rows(self) -> DataFrame:
        """Return the table's present rows; later commits do not change the frame."""
        return self._spark.read.format("delta").load(self.path)

    def new_rows(self) -> tuple[Commit, DataFrame] | None:
        """Return the latest commit of a batch, and the rows that it has added; None where there are none.

        Raise StopError where their files are gone.
        """
        found = self._history.files_of_batch()
        if found is None or not found[1]:
            return None
        commit, files = found
        paths = [f"{self.path}/{name}" for name in files]
        if gone := [path for path in paths if not jvm.exists(self._spark, path)]:
            raise stops.compacted(self.path, gone[0], commit)
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
        """Commit the rows and return their number.

        Raise StopError where another job has claimed the table since, another program has removed rows, or the table
        is no longer the one that was opened.
        """
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
            last = self._history.last()
            raise stops.claimed(self.path, last)
        if written.commit != commit:
            raise stops.copied(self.path, commit)
        if self._history.may_lack_rows:
            self.check_rows()
        self._check_id(str(jvm.delta_log(self._spark, self.path).unsafeVolatileSnapshot().metadata().id()))
        self._log_cleaner.clean_if_due()
        return written.rows

    def claim(self, commit: Commit) -> None:
        """Commit without rows; raise StopError as `append`."""
        self.append(self._spark.createDataFrame([], self._layout.schema), commit)

    def _check_versions(self) -> None:
        """Raise StopError where the table has lost versions, since an append would create it anew, or continue it."""
        if (version := self._history.lost_version()) is not None:
            raise StopError(
                f"table {self.path}: its log no longer has version {version}, which this job has read. Its folder was "
                "removed or replaced by an older copy, or its disk unmounted, while the job ran. Nothing more is "
                "written or receipted. If the folder is still somewhere, put it back, or mount the disk, and start "
                "again. With an older copy, start with a new checkpoint, which reads again what the copy lacks. "
                f"Without any, start with a new table, a new checkpoint and --succeeds {self._id}"
            )

    def _detail(self) -> Row:
        return self._spark.sql(f"DESCRIBE DETAIL {self._name}").select("id", "properties").collect()[0]

    def _check_id(self, present: str) -> None:
        """Raise StopError where the table is another one than that which was opened."""
        if present != self._id:
            raise stops.replaced(self.path, self._id, present)

    def compact(self) -> tuple[int, int]:
        """Compact small files into larger ones; return the numbers of removed and of added files."""
        metrics = self._spark.sql(f"OPTIMIZE {self._name}").select("metrics").collect()[0]["metrics"]
        return int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])

    def lacks(self, schema: StructType) -> bool:
        """Whether columns of this name or type are missing."""
        return not _types(schema).items() <= _types(self.rows().schema).items()

    def widen(self, schema: StructType, *by: tuple[str, str]) -> None:
        """Add the columns that the table lacks; those that this job does not know stay as they are.

        Raise StopError where one has another type.
        """
        present, expected = _types(self.rows().schema), _types(schema)
        if names := widening.missing(self.path, present, expected, *by):
            columns = ", ".join(f"`{name.replace('`', '``')}` {expected[name]}" for name in names)
            try:
                self._spark.sql(f"ALTER TABLE {self._name} ADD COLUMNS ({columns})")
            except jvm.FAILURES as error:
                raise StopError(
                    f"table {self.path}: Delta refuses the columns {columns}: {jvm.cause(error)}"
                ) from error
            logger.info("table=%s stage=widened columns=%s", self.path, ",".join(names))

    def opened_folder(self) -> FlushedFolders:
        """Return its folder, opened to flush what is written from now on; nothing where the disk is not local."""
        return FlushedFolders(disk.local_folders(self._spark, [self.path]))

    def vacuum(self, retain_seconds: int) -> None:
        """Remove files that no commit of the last `retain_seconds` refers to."""
        self._spark.sql(f"VACUUM {self._name} RETAIN {math.ceil(retain_seconds / 3600)} HOURS").collect()

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
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}


def excludes_writers(spark: SparkSession, path: str) -> bool:
    """Whether concurrent commits of two processes to a table cannot replace each other."""
    scheme = urlsplit(path).scheme or jvm.default_scheme(spark)
    chosen = (f"spark.delta.logStore.{scheme}.impl", "spark.delta.logStore.class")
    settings = spark.sparkContext.getConf()
    return scheme not in _SINGLE_DRIVER_SCHEMES or any(settings.contains(name) for name in chosen)
