"""A table that Spark writes, and the errors that stop its writer, alike for every kind."""

import logging
from abc import ABC, abstractmethod
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cloud.errors import StopError
from cloud.runtime import jvm
from cloud.table import widening
from cloud.table.commits import Commit

logger = logging.getLogger(__name__)


class LakeTable(ABC):
    """A table that takes a whole batch with its commit, or nothing of it."""

    format: ClassVar[str]
    id: str
    """A table that is dropped and recreated has another."""
    path: str
    """The folder of its files."""

    def __init__(self, spark: SparkSession, name: str, in_sql: str) -> None:
        """`name` is that of messages, `in_sql` that of statements."""
        self._spark = spark
        self.name = name
        self._in_sql = in_sql

    @abstractmethod
    def last_commit(self) -> Commit | None:
        """Return the latest commit of a job; None where there is none yet."""

    @abstractmethod
    def check(self) -> None:
        """Raise StopError where the table is no longer the one that was opened, or has lost commits or rows."""

    @abstractmethod
    def rows(self) -> DataFrame:
        """Return the table's present rows; later commits do not change the frame."""

    @abstractmethod
    def new_rows(self) -> tuple[Commit, DataFrame] | None:
        """Return the latest commit of a batch, and the rows that it has added; None where there are none.

        Raise StopError where their files are gone.
        """

    @abstractmethod
    def append(self, rows: DataFrame, commit: Commit) -> int:
        """Commit the rows and return their number.

        Raise StopError where another job has claimed the table since, another program has removed rows, or the table
        is no longer the one that was opened.
        """

    @abstractmethod
    def claim(self, commit: Commit) -> None:
        """Commit without rows; raise StopError as `append`."""

    @abstractmethod
    def compact(self) -> tuple[int, int]:
        """Compact small files into larger ones; return the numbers of removed and of added files."""

    @abstractmethod
    def vacuum(self, retain_seconds: int) -> None:
        """Remove files that no commit of the last `retain_seconds` refers to."""

    def lacks(self, schema: StructType) -> bool:
        """Whether columns of this name or type are missing."""
        return not self._types(schema).items() <= self._types(self._schema()).items()

    def widen(self, schema: StructType, *by: tuple[str, str]) -> None:
        """Add the columns that the table lacks; those that this job does not know stay as they are.

        Raise StopError where one has another type.
        """
        present, expected = self._types(self._schema()), self._types(schema)
        if names := widening.missing(self.name, present, expected, *by):
            columns = ", ".join(f"{jvm.quoted(name)} {expected[name]}" for name in names)
            try:
                self._spark.sql(f"ALTER TABLE {self._in_sql} ADD COLUMNS ({columns})")
            except jvm.FAILURES as error:
                raise StopError(
                    f"table {self.name}: {self.format} refuses the columns {columns}: {jvm.cause(error)}"
                ) from error
            logger.info("table=%s stage=widened columns=%s", self.name, ",".join(names))

    def _schema(self) -> StructType:
        return self.rows().schema

    def _types(self, schema: StructType) -> dict[str, str]:
        """Return the types that a table has for these columns."""
        return {field.name: field.dataType.simpleString() for field in schema}

    def _check_id(self, present: str) -> None:
        """Raise StopError where another table is in the place of the one that was opened, by their ids."""
        if present != self.id:
            raise StopError(
                f"table {self.name}: it has the id {present}, and this job has opened the table {self.id}: another one "
                "was put in its place while the job ran. Nothing more is receipted. Put the former table back, and "
                "start again; or continue with the present one, by a new checkpoint, --read-again and --succeeds "
                f"{self.id}"
            )

    def _removed(self, by: str) -> StopError:
        """Return the error for rows that another program has removed."""
        return StopError(
            f"table {self.name}: {by} by another program, has removed rows that were receipted. Start with a new "
            "checkpoint: with --read-again to restore those that the topic still has, or without it to leave them out"
        )

    def _claimed(self, last: object) -> StopError:
        """Return the error for a table whose last commit is of a younger claim."""
        return StopError(f"table {self.name}: another job has claimed it since ({last}); this job ends for good")

    def _copied(self, commit: Commit) -> StopError:
        """Return the error for a batch that another job has written under this job's claim."""
        return StopError(
            f"table {self.name}: another job has written batch {commit.batch} under the same claim, so it runs on a "
            f"copy of this job's checkpoint {commit.checkpoint}. Nothing of this job's batch is written or receipted. "
            "End one of the two for good; start this one, if it is to continue, with a new checkpoint"
        )

    def _compacted(self, file: str, commit: Commit) -> StopError:
        """Return the error for new rows whose file is gone before their effects were made."""
        return StopError(
            f"table {self.name}: {file} is gone, with rows of batch {commit.batch} whose effects are not done: "
            "maintenance has compacted the table and removed its old files while the job was stopped. Make these "
            f"effects by hand, for the rows whose kafka_offset is in {commit.starts} to {commit.ends}, start once "
            "without --effects until the next batch is written, and go on with it"
        )
