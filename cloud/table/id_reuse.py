"""Reused ids: different events whose identities are equal, since they hold no time and a counter has wrapped.

Where two such events were accepted further apart than gateways remember, no gateway treated them as duplicates, and
neither does the job: the first is in the table, the other in quarantine, none is lost. So the state must never drop one
as a duplicate of the other: the dedup key contains the span of acceptance (decision 22). And since the earlier one may
be of any age, each is looked up in the table, even where a resend horizon bounds its duplicates' age (decision 43).

The time of acceptance is the gateway's where its clock is trusted, else the broker's time of append (decision 50).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from cloud.table.layout import Reason
from contract.record import ClockTrust, SharedDay

SPAN_BYTES = 8
_LABEL = ("epoch", "sequence")


def accepted() -> Column:
    """Return an event's time of acceptance by a trusted clock, which is not later than its append by the broker."""
    good = F.when(F.col("clock") == ClockTrust.TRUSTED.value, F.col("received"))
    return F.coalesce(F.least(good, F.col("appended")), F.col("received"))


def span(retention_seconds: int) -> Column:
    """Return the number of the retention period of acceptance, in SPAN_BYTES; duplicates differ by one at most."""
    number = F.floor(F.unix_seconds(accepted()) / retention_seconds).cast("bigint")
    return F.unhex(F.lpad(F.hex(number), 2 * SPAN_BYTES, "0"))


def is_without_time() -> Column:
    """Whether the identity has an id, and neither a time nor a label that distinguishes it from a later one."""
    return F.col("shared") == SharedDay.NONE.value


def first_of_each(good: DataFrame) -> DataFrame:
    """Return the first accepted of equal fingerprints within a batch."""
    return _ranked(good).filter(F.col("rank") == 1).drop("rank", "equals", "accepted")


def reused_ids(late: DataFrame, found: DataFrame, retention_seconds: int, *, has_equals: bool) -> DataFrame:
    """Return late events whose fingerprint belongs to another event, in the table or earlier in the batch.

    `found` are the rows of the table with their fingerprints; `has_equals`: whether the batch contains equal ones.
    """
    without_time = late.filter(is_without_time()).withColumn("accepted", accepted())
    earlier = _as_earlier(found)
    if has_equals:
        firsts = _ranked(without_time).filter((F.col("rank") == 1) & (F.col("equals") > 1))
        new = firsts.join(F.broadcast(found.select("fingerprint")), on="fingerprint", how="left_anti")
        earlier = earlier.unionByName(_as_earlier(new))
    apart = F.abs(F.unix_millis("accepted") - F.unix_millis("earlier_accepted"))
    other_label = (F.col("epoch") != F.col("earlier_epoch")) | (F.col("sequence") != F.col("earlier_sequence"))
    return (
        without_time.join(F.broadcast(earlier), on="fingerprint", how="inner")
        .filter(other_label & (apart > retention_seconds * 1000))
        .withColumn("reason", F.lit(Reason.ID_REUSED.value))
    )


def _ranked(events: DataFrame) -> DataFrame:
    same = Window.partitionBy("fingerprint")
    order = same.orderBy("accepted", *_LABEL, "kafka_partition", "kafka_offset")
    dated = events.withColumn("accepted", accepted())
    return dated.withColumn("rank", F.row_number().over(order)).withColumn("equals", F.count("*").over(same))


def _as_earlier(events: DataFrame) -> DataFrame:
    return events.select("fingerprint", *(F.col(name).alias(f"earlier_{name}") for name in (*_LABEL, "accepted")))
