"""The sink of the batches: a table that records its offsets in its own commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cloud.table.commits import Commit

if TYPE_CHECKING:  # there are writers without Spark
    from pyspark.sql import DataFrame

    from cloud.table.freshness import Horizon


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of one batch, in rows."""

    rows: int
    """Rows that are new in the table."""
    late: int = 0
    bad: int = 0
    """Records that went to quarantine: those that are not well-formed, and events with reused ids."""
    found: int = 0
    """Duplicates that are no row, since the table, or an earlier one of the batch, is the event already."""
    ahead: int | None = None
    """As returned by `latest_ahead`, in milliseconds; the commit's birth is not earlier."""
    rejected: int = 0
    """Events that the transform rejects, whose records went to quarantine, too."""


class Sink(Protocol):
    """A table that takes whole batches: rows, quarantine and the commit with their offsets, or nothing."""

    @property
    def id(self) -> str:
        """Return the table's id; a table that is dropped and recreated has another."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Return the folders to be flushed to disk before a receipt; a database flushes by itself."""

    def last_commit(self) -> Commit | None:
        """Return the latest commit of a job; None where there is none yet."""

    def last_claim(self) -> int:
        """Return the highest number of a claim by which table or quarantine was written; 0 where there is none."""

    def check(self) -> None:
        """Raise StopError where the table is no longer the one that was opened, or has lost commits or rows.

        Of rows only as far as it is known that another program has removed them since this checkpoint's last commit.
        """

    def claim(self, commit: Commit) -> None:
        """Write a commit without rows; raise StopError where the table has a younger claim."""

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        """Commit one batch, each event once; raise StopError where another job has claimed the table since."""


@dataclass(frozen=True, slots=True)
class NewRows:
    """What the latest batch of a table has added."""

    key: str
    """Of this batch alone, in all tables: the table's id and the number of the commit."""
    rows: DataFrame


class EffectsSink(Protocol):
    """A sink that knows the rows of its latest batch."""

    def new_rows(self) -> NewRows | None:
        """Return the rows that the latest batch has added; None where there are none."""
