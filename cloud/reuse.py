"""Ids that were used before: events whose identity holds no time, equal in all, and yet not one event.

A counter wraps. Where two such events were accepted further apart than gateways remember, no gateway took them for
copies, and neither do we: the first is in the table, the other in quarantine, none is lost.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from contract.record import Clock, Shared

ID_REUSED = "id_reused"
SPAN_BYTES = 8
_LABEL = ("epoch", "sequence")


def is_aged(window_seconds: int) -> Column:
    """Tell records that the state must not hold against one another by their fingerprint alone.

    Their bound is unknown, and a trusted clock accepted them more than a window before Kafka had them. They pass under
    a key of their own, all of them are late, and no fresh event is a copy of one.
    """
    age = F.unix_millis("appended") - F.unix_millis("received")
    return F.coalesce(
        (F.col("shared") == Shared.NONE.value)
        & F.col("bound").isNull()
        & (F.col("clock") == Clock.TRUSTED.value)
        & (age > window_seconds * 1000),
        F.lit(False),
    )


def span(retention_seconds: int) -> Column:
    """Give the span of one retention in which a record was accepted, in SPAN_BYTES: equal events of one are copies."""
    number = F.floor(F.unix_seconds("received") / retention_seconds).cast("bigint")
    return F.unhex(F.lpad(F.hex(number), 2 * SPAN_BYTES, "0"))


def first_of_each(good: DataFrame) -> DataFrame:
    """Keep the first accepted of equal fingerprints within a batch."""
    return _ranked(good).filter(F.col("rank") == 1).drop("rank", "copies")


def reused_ids(late: DataFrame, found: DataFrame, retention_seconds: int, *, is_aged: bool) -> DataFrame:
    """Give late events whose fingerprint the table has of another event, or an earlier one of an aged batch has."""
    without_time = late.filter(F.col("shared") == Shared.NONE.value)
    earlier = _as_earlier(found)
    if is_aged:
        firsts = _ranked(without_time).filter((F.col("rank") == 1) & (F.col("copies") > 1))
        new = firsts.join(F.broadcast(found.select("fingerprint")), on="fingerprint", how="left_anti")
        earlier = earlier.unionByName(_as_earlier(new))
    apart = F.abs(F.unix_millis("received") - F.unix_millis("earlier_received"))
    other_label = (F.col("epoch") != F.col("earlier_epoch")) | (F.col("sequence") != F.col("earlier_sequence"))
    return (
        without_time.join(F.broadcast(earlier), on="fingerprint", how="inner")
        .filter(other_label & (apart > retention_seconds * 1000))
        .withColumn("reason", F.lit(ID_REUSED))
    )


def _ranked(events: DataFrame) -> DataFrame:
    same = Window.partitionBy("fingerprint")
    order = same.orderBy("received", *_LABEL, "kafka_partition", "kafka_offset")
    return events.withColumn("rank", F.row_number().over(order)).withColumn("copies", F.count("*").over(same))


def _as_earlier(events: DataFrame) -> DataFrame:
    return events.select("fingerprint", *(F.col(name).alias(f"earlier_{name}") for name in (*_LABEL, "received")))
