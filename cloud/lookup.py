"""The look-up: which late events the table has already."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud import reuse

DAYS_MAX = 1000
"""So many days are named to the table; of more, all are read."""


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of late events in the table, collected: fingerprint, epoch, sequence, accepted."""

    rows: DataFrame
    count: int


def find(late: DataFrame, table: DataFrame, days: Collection[date] | None) -> Found:
    """Look the late events up in the days that all their copies share, or in all days (None)."""
    if days is not None and len(days) <= DAYS_MAX:
        table = table.filter(F.col("day").isin(list(days)))
    rows = (
        table.select("fingerprint", "epoch", "sequence", reuse.accepted().alias("accepted"))
        .join(F.broadcast(late.select("fingerprint")), on="fingerprint", how="leftsemi")
        .localCheckpoint(eager=True)
    )
    return Found(rows, rows.count())


def without_found(survivors: DataFrame, found: Found | None) -> DataFrame:
    """Leave out what the table has."""
    if found is None or found.count == 0:
        return survivors
    return survivors.join(F.broadcast(found.rows.select("fingerprint")), on="fingerprint", how="left_anti")
