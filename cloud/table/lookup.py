"""The look-up of late events in the table."""

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
class Matches:
    """The table's rows with fingerprints of late events: fingerprint, epoch, sequence, accepted; materialized."""

    rows: DataFrame
    count: int


def find(late: DataFrame, table: DataFrame, search: Search) -> Matches:
    """Return the table's rows with the fingerprints of late events, searching where their duplicates can be."""
    rows = sought(late, table, search).localCheckpoint(eager=True)
    return Matches(rows, rows.count())


def sought(late: DataFrame, table: DataFrame, search: Search) -> DataFrame:
    """Return the query of `find`, in which statistics and Bloom filters exclude files and row groups."""
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
