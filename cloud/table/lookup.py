"""The look-up: which late events the table has already."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cloud.table import id_reuse
from cloud.table.rows import DAY_OUTSIDE

DAYS_MAX = 1000
"""So many days are named to the table; of more, all are read."""
NAMED_MAX = 100
"""So many events are named to the table, whose files tell without being read whether they may have them."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Search:
    """Where the table has the copies of a batch's late events, if it has any."""

    count: int
    """Of late events."""
    days: Collection[date] | None = None
    """The days that all copies share; None: any."""
    event_times: Span | None = None
    """First and last of the times that are part of an identity, in microseconds since 1970 UTC."""
    received: Span | None = None
    """First and last acceptance where the label is."""


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of late events in the table, collected: fingerprint, epoch, sequence, accepted."""

    rows: DataFrame
    count: int


def find(late: DataFrame, table: DataFrame, search: Search) -> Found:
    """Look the late events up where their copies can be."""
    rows = sought(late, table, search).localCheckpoint(eager=True)
    return Found(rows, rows.count())


def sought(late: DataFrame, table: DataFrame, search: Search) -> DataFrame:
    """Return the rows of late events; statistics and Bloom filters leave out files and row groups that have none."""
    if search.days is not None:
        table = table.filter(_moments(search))
        if len(search.days) <= DAYS_MAX:
            table = table.filter(F.col("day").isin([*search.days, DAY_OUTSIDE]))
    rows = table.select("fingerprint", "epoch", "sequence", id_reuse.accepted().alias("accepted"))
    if search.count <= NAMED_MAX:
        named = [row["fingerprint"] for row in late.select("fingerprint").distinct().collect()]
        return rows.filter(F.col("fingerprint").isin(named))
    return rows.join(F.broadcast(late.select("fingerprint")), on="fingerprint", how="leftsemi")


def _moments(search: Search) -> Column:
    spans = {"event_time": search.event_times, "received": search.received}
    within = [
        F.col(name).between(F.timestamp_micros(F.lit(span[0])), F.timestamp_micros(F.lit(span[1])))
        for name, span in spans.items()
        if span is not None
    ]
    return reduce(lambda one, other: one | other, within, F.lit(False))


def without_found(survivors: DataFrame, found: Found | None) -> DataFrame:
    """Leave out what the table has."""
    if found is None or found.count == 0:
        return survivors
    return survivors.join(F.broadcast(found.rows.select("fingerprint")), on="fingerprint", how="left_anti")
