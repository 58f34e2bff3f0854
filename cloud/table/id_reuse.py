"""Ids that were used before: events whose identity holds no time, equal in all, and yet not one event.

A counter wraps. Where two such events were accepted further apart than gateways remember, no gateway took them for
copies, and neither do we: the first is in the table, the other in quarantine, none is lost. So the state must not hold
one against the other, however old its memory is: their key has the span of acceptance. And since the earlier one may
be of any age, each is looked up in the table, even where a resend horizon bounds the age of its copies.

When an event was accepted only a gateway with a good clock can say; for the others, when the broker has appended it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from contract.record import ClockTrust, Shared

ID_REUSED = "id_reused"
SPAN_BYTES = 8
_LABEL = ("epoch", "sequence")


def accepted() -> Column:
    """Return when an event was accepted, as far as a good clock tells: never later than the broker has appended it."""
    good = F.when(F.col("clock") == ClockTrust.TRUSTED.value, F.col("received"))
    return F.coalesce(F.least(good, F.col("appended")), F.col("received"))


def span(retention_seconds: int) -> Column:
    """Return the span of one retention in which a record was accepted, in SPAN_BYTES; copies are of one or the next."""
    number = F.floor(F.unix_seconds(accepted()) / retention_seconds).cast("bigint")
    return F.unhex(F.lpad(F.hex(number), 2 * SPAN_BYTES, "0"))


def is_without_time() -> Column:
    """Whether the identity holds an id, and neither a time nor a label that would tell it from a later one."""
    return F.col("shared") == Shared.NONE.value


def first_of_each(good: DataFrame) -> DataFrame:
    """Keep the first accepted of equal fingerprints within a batch."""
    return _ranked(good).filter(F.col("rank") == 1).drop("rank", "copies", "accepted")


def reused_ids(late: DataFrame, found: DataFrame, retention_seconds: int, *, has_equals: bool) -> DataFrame:
    """Return late events whose fingerprint the table has of another event, or an earlier one of the batch has.

    `has_equals`: there are equal fingerprints within the batch.
    """
    without_time = late.filter(is_without_time()).withColumn("accepted", accepted())
    earlier = _as_earlier(found)
    if has_equals:
        firsts = _ranked(without_time).filter((F.col("rank") == 1) & (F.col("copies") > 1))
        new = firsts.join(F.broadcast(found.select("fingerprint")), on="fingerprint", how="left_anti")
        earlier = earlier.unionByName(_as_earlier(new))
    apart = F.abs(F.unix_millis("accepted") - F.unix_millis("earlier_accepted"))
    other_label = (F.col("epoch") != F.col("earlier_epoch")) | (F.col("sequence") != F.col("earlier_sequence"))
    return (
        without_time.join(F.broadcast(earlier), on="fingerprint", how="inner")
        .filter(other_label & (apart > retention_seconds * 1000))
        .withColumn("reason", F.lit(ID_REUSED))
    )


def _ranked(events: DataFrame) -> DataFrame:
    same = Window.partitionBy("fingerprint")
    order = same.orderBy("accepted", *_LABEL, "kafka_partition", "kafka_offset")
    dated = events.withColumn("accepted", accepted())
    return dated.withColumn("rank", F.row_number().over(order)).withColumn("copies", F.count("*").over(same))


def _as_earlier(events: DataFrame) -> DataFrame:
    return events.select("fingerprint", *(F.col(name).alias(f"earlier_{name}") for name in (*_LABEL, "accepted")))
