"""Where the batches end: a table that is the truth about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from cloud.commits import Commit
from cloud.freshness import Horizon


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


class Sink(Protocol):
    """Take whole batches: rows, quarantine and the commit that says where they came from, or nothing of it."""

    @property
    def id(self) -> str:
        """The table's own id, another one after it was dropped and made anew."""

    def last_commit(self) -> Commit | None:
        """Give the latest commit of a job; None where there was none yet."""

    def claim(self, commit: Commit) -> None:
        """Commit nothing but the claim; raise StopError where a younger one stands there."""

    def write(self, survivors: DataFrame, commit: Commit, horizon: Horizon) -> Written:
        """Commit one batch, each event once; raise StopError where another job has claimed the table since."""
