"""Where the batches end: a table that is the truth about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from cloud.table.commits import Commit
from cloud.table.freshness import Horizon


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one batch's survivors, in rows."""

    rows: int
    """New in the table."""
    late: int = 0
    bad: int = 0
    """Not well-formed: in quarantine."""
    found: int = 0
    """The table had them already."""
    ahead: int | None = None
    """Kafka's latest append time beyond what the driver's clock allows: the commit's birth is no earlier."""


class Sink(Protocol):
    """Take whole batches: rows, quarantine and the commit that says where they came from, or nothing of it."""

    @property
    def id(self) -> str:
        """The table's own id, another one after it was dropped and made anew."""

    def last_commit(self) -> Commit | None:
        """Return the latest commit of a job; None where there was none yet."""

    def check_rows(self) -> None:
        """Raise StopError where somebody has taken rows away since this checkpoint's last commit, and it shows."""

    def claim(self, commit: Commit) -> None:
        """Commit no row, only what a commit says; raise StopError where a younger claim stands there."""

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        """Commit one batch, each event once; raise StopError where another job has claimed the table since."""
