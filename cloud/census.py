"""The census of a batch: how many rows of each kind survived the dedup, and in which days the late ones belong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud.records import FINGERPRINT_BYTES
from cloud.rows import day_of
from contract.record import Shared


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of one batch."""

    rows: int
    bad: int
    late: int
    aged: int
    """Those that passed the dedup under a key of their own: equal fingerprints among them are possible."""
    late_days: tuple[date, ...] | None
    """The days that hold every copy of the late events; None where only all days do."""


def count(judged: DataFrame) -> Census:
    """Count in one pass."""
    bad = F.col("reason").isNotNull()
    late = ~bad & ~F.col("fresh")
    anywhere = late & (F.col("shared") == Shared.NONE.value)
    row = judged.agg(
        F.count("*").alias("rows"),
        F.count_if(bad).alias("bad"),
        F.count_if(late).alias("late"),
        F.count_if(~bad & (F.length("key") > FINGERPRINT_BYTES)).alias("aged"),
        F.count_if(anywhere).alias("anywhere"),
        F.collect_set(F.when(late, day_of())).alias("days"),
    ).collect()[0]
    return Census(row["rows"], row["bad"], row["late"], row["aged"], None if row["anywhere"] else tuple(row["days"]))
