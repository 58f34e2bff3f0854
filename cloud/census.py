"""The census of a batch: how many rows of each kind survived the dedup, and in which days the late ones belong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud.freshness import Horizon, latest_ahead
from cloud.reuse import is_without_time
from cloud.rows import day_of


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of one batch."""

    rows: int
    bad: int
    late: int
    has_equals: bool
    """Equal fingerprints have passed the dedup, under keys of different spans."""
    late_days: tuple[date, ...] | None
    """The days that hold every copy of the late events; None where only all days do."""
    ahead: int | None
    """As in `Written`."""


def count(judged: DataFrame, horizon: Horizon) -> Census:
    """Count in one pass."""
    bad = F.col("reason").isNotNull()
    late = ~bad & ~F.col("fresh")
    anywhere = late & is_without_time()
    row = judged.agg(
        F.count("*").alias("rows"),
        F.count_if(bad).alias("bad"),
        F.count_if(late).alias("late"),
        F.count_if(anywhere).alias("anywhere"),
        F.count_distinct(F.when(anywhere, F.col("fingerprint"))).alias("different"),
        F.collect_set(F.when(late, day_of())).alias("days"),
        latest_ahead(horizon).alias("ahead"),
    ).collect()[0]
    days = None if row["anywhere"] else tuple(row["days"])
    return Census(row["rows"], row["bad"], row["late"], row["anywhere"] > row["different"], days, row["ahead"])
