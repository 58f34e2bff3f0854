"""The counts of a batch: how many rows of each kind survived the dedup, and where duplicates of late ones can be."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cloud.table.freshness import Horizon, latest_ahead
from cloud.table.id_reuse import is_without_time
from cloud.table.lookup import Search
from cloud.table.rows import day_of
from contract.record import Shared


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Counts of one batch's survivors."""

    rows: int
    bad: int
    late: int
    has_equals: bool
    """Whether equal fingerprints have passed the dedup, under keys of different spans."""
    search: Search
    """The part of the table where duplicates of the late events can be."""
    ahead: int | None
    """As in `Written`."""


def count_rows(judged: DataFrame, horizon: Horizon) -> BatchCounts:
    """Count the survivors in one pass; `judged` are they with the column `fresh`."""
    bad = F.col("reason").isNotNull()
    late = ~bad & ~F.col("fresh")
    anywhere = late & is_without_time()
    by_time, by_label = (late & (F.col("shared") == shared.value) for shared in (Shared.TIME, Shared.LABEL))
    row = judged.agg(
        F.count("*").alias("rows"),
        F.count_if(bad).alias("bad"),
        F.count_if(late).alias("late"),
        F.count_if(anywhere).alias("anywhere"),
        F.count_distinct(F.when(anywhere, F.col("fingerprint"))).alias("different"),
        F.collect_set(F.when(late, day_of())).alias("days"),
        *_span(by_time, "event_time"),
        *_span(by_label, "received"),
        latest_ahead(horizon).alias("ahead"),
    ).collect()[0]
    spans = (_read_span(row, name) for name in ("event_time", "received"))
    search = Search(row["late"]) if row["anywhere"] else Search(row["late"], tuple(row["days"]), *spans)
    return BatchCounts(row["rows"], row["bad"], row["late"], row["anywhere"] > row["different"], search, row["ahead"])


def _span(which: Column, name: str) -> tuple[Column, Column]:
    time = F.when(which, F.unix_micros(name))
    return F.min(time).alias(f"{name}_first"), F.max(time).alias(f"{name}_last")


def _read_span(row: Row, name: str) -> tuple[int, int] | None:
    first, last = row[f"{name}_first"], row[f"{name}_last"]
    return None if first is None else (first, last)
