"""The look-up of late events in the table."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cloud.table import id_reuse
from cloud.table.freshness import Horizon, latest_ahead
from cloud.table.layout import DAY_OUTSIDE
from cloud.table.rows import day_of
from contract.record import SharedDay

DAYS_MAX = 1000
"""The number of days up to which a look-up is limited to them; with more it reads all days."""
NAMED_MAX = 100
"""The number of events up to which a look-up names them, so that statistics and Bloom filters skip files."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Search:
    """The part of the table where duplicates of a batch's late events can be."""

    count: int
    """The number of late events."""
    days: Collection[date] | None = None
    """The days of all duplicates; None for any."""
    event_times: Span | None = None
    """First and last time that is part of an identity, in microseconds since 1970 UTC."""
    received: Span | None = None
    """First and last acceptance of events whose label is part of the identity, in the same unit."""


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


@dataclass(frozen=True, slots=True)
class Matches:
    """The table's rows with fingerprints of late events: fingerprint, epoch, sequence, accepted; materialized."""

    rows: DataFrame
    count: int


def find(late: DataFrame, table: DataFrame, search: Search) -> Matches:
    """Return the table's rows with the fingerprints of late events, searching where their duplicates can be."""
    rows = sought(late, table, search).localCheckpoint(eager=True)
    return Matches(rows, rows.count())


def sought(late: DataFrame, table: DataFrame, search: Search) -> DataFrame:
    """Return the query of `find`, in which statistics and Bloom filters exclude files and row groups (decision 55)."""
    if search.days is not None:
        table = table.filter(_timestamps(search))
        if len(search.days) <= DAYS_MAX:
            table = table.filter(F.col("day").isin([*search.days, DAY_OUTSIDE]))
    rows = table.select("fingerprint", "epoch", "sequence", id_reuse.accepted().alias("accepted"))
    if search.count <= NAMED_MAX:
        named = [row["fingerprint"] for row in late.select("fingerprint").distinct().collect()]
        return rows.filter(F.col("fingerprint").isin(named))
    return rows.join(F.broadcast(late.select("fingerprint")), on="fingerprint", how="leftsemi")


def _timestamps(search: Search) -> Column:
    spans = {"event_time": search.event_times, "received": search.received}
    within = [
        F.col(name).between(F.timestamp_micros(F.lit(span[0])), F.timestamp_micros(F.lit(span[1])))
        for name, span in spans.items()
        if span is not None
    ]
    return reduce(lambda one, other: one | other, within, F.lit(False))


def without_found(survivors: DataFrame, found: Matches | None) -> DataFrame:
    """Return the survivors that the table does not have."""
    if found is None or found.count == 0:
        return survivors
    return survivors.join(F.broadcast(found.rows.select("fingerprint")), on="fingerprint", how="left_anti")


def count_rows(judged: DataFrame, horizon: Horizon) -> BatchCounts:
    """Count the survivors in one pass; `judged` has them with the column `fresh`."""
    bad = F.col("reason").isNotNull()
    late = ~bad & ~F.col("fresh")
    anywhere = late & id_reuse.is_without_time()
    by_time, by_label = (late & (F.col("shared") == shared.value) for shared in (SharedDay.TIME, SharedDay.LABEL))
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
