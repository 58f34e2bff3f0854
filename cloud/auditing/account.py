"""The account of each label: functions from data frames to data frames.

`records` are those of `auditing.topic`; `rows`, `quarantine` and `gateway_events` are those of the table's view. Frames
of ranges have gateway, epoch, status, first, last, since.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from contract.record import NUMBER_MAX

ACCEPTED, DUPLICATE, QUARANTINED, GAP = "accepted", "duplicate", "quarantined", "gap"
MISSING, PENDING, AMBIGUOUS = "missing", "pending", "ambiguous"
UNWRITTEN, VANISHED = "unwritten", "vanished"
UNACCOUNTED = "unaccounted"
"""A row whose label no record has; the only status of a row."""
COUNTED = (ACCEPTED, DUPLICATE, QUARANTINED, GAP, MISSING, PENDING)
"""The statuses counted per epoch, in which unwritten and vanished labels count as missing."""
OPEN, COMPLETE, FORKED = STATES = ("open", "complete", "forked")
"""What an epoch is: its end is not known, or labels may still arrive; whole; continued by two copies of one store."""
LABEL = ("gateway", "epoch", "sequence")
EPOCH = ("gateway", "epoch")
PLACE = ("kafka_partition", "kafka_offset")
RECORD = (*PLACE, "content")
RANGE = (*EPOCH, "status", "first", "last", "since")
BLOCK_BITS = 10
"""A block has 1,024 sequences."""


def is_count(number: Column) -> Column:
    """Whether a bigint, whatever a writer to the topic states, is a sequence, in [0, NUMBER_MAX].

    It names the column once: Spark copies the expression behind a column for each use, at every level of the plan.
    """
    return number.bitwiseAND(F.lit(~NUMBER_MAX)) == 0


def judge(records: DataFrame, rows: DataFrame, quarantine: DataFrame) -> DataFrame:
    """Add to each record its status, the row with its fingerprint (`of_…`), and the number of such rows (`matches`)."""
    there = rows.groupBy("fingerprint").agg(
        F.count("*").alias("matches"),
        F.min(F.struct(*(F.col(name).alias(f"of_{name}") for name in (*LABEL, *PLACE)))).alias("of"),
    )
    # What somebody else has written says nothing about the labels of the gateway that it names.
    raw = quarantine.groupBy(*RECORD).agg(F.max("foreign").alias("foreign")).withColumn("is_raw", F.lit(True))
    same = reduce(lambda one, other: one & other, (F.col(name) == F.col(f"of_{name}") for name in LABEL))
    rejected = (
        quarantine.select(F.col("rejected").alias("fingerprint")).distinct().withColumn("is_rejected", F.lit(True))
    )
    joined = records.join(there, on="fingerprint", how="left").join(raw, on=list(RECORD), how="left")
    flat = joined.join(rejected, on="fingerprint", how="left").select("*", "of.*").drop("of")
    status = (
        F.when(F.coalesce(same, F.lit(False)), ACCEPTED)
        .when(F.col("is_raw"), QUARANTINED)
        .when(F.col("matches").isNotNull(), DUPLICATE)
        .when(F.col("is_rejected"), QUARANTINED)
        .otherwise(UNWRITTEN)
    )
    own = F.when(F.col("foreign").isNull(), F.col("sequence"))
    return flat.withColumns({"status": status, "sequence": own}).drop("is_raw", "is_rejected", "foreign")


def labels(judged: DataFrame) -> DataFrame:
    """Return each label once, with the best status of its records."""
    order = {ACCEPTED: 0, DUPLICATE: 1, QUARANTINED: 2, UNWRITTEN: 3}
    rank = F.coalesce(*(F.when(F.col("status") == name, F.lit(number)) for name, number in order.items()))
    best = F.element_at(F.array(*map(F.lit, order)), F.min(rank) + 1)
    return (
        judged.filter(F.col("sequence").isNotNull())
        .groupBy(*LABEL)
        .agg(best.alias("status"), F.min("appended").alias("since"))
    )


def doubled(rows: DataFrame) -> DataFrame:
    """Return the fingerprints that the table has more than once."""
    return rows.groupBy("fingerprint").count().filter(F.col("count") > 1).select("fingerprint")


def without_row(judged: DataFrame) -> DataFrame:
    """Return duplicates and quarantined records with a label and a leaf, but no row of their own."""
    is_without_row = F.col("status").isin(DUPLICATE, QUARANTINED) & F.col("sequence").isNotNull()
    return judged.filter(is_without_row & F.col("leaf").isNotNull())


def newer(judged: DataFrame) -> DataFrame:
    """Return the accepted records with keys unknown here, which their rows lack."""
    return judged.filter((F.col("status") == ACCEPTED) & F.col("row_leaf").isNotNull())


def ambiguous(judged: DataFrame, rows: DataFrame, duplicates: DataFrame) -> DataFrame:
    """Return the labels with more than one fingerprint, without regard to records in quarantine."""
    labelled = judged.filter(F.col("sequence").isNotNull() & F.col("status").isin(ACCEPTED, DUPLICATE, UNWRITTEN))
    own = labelled.select(*LABEL, "fingerprint", "appended")
    known = rows.select(*LABEL, "fingerprint").unionByName(duplicates.select(*LABEL, "fingerprint"))
    touched = known.join(own.select(*LABEL).distinct(), on=list(LABEL), how="left_semi")
    return (
        own.unionByName(touched.withColumn("appended", F.lit(None).cast("timestamp")))
        .groupBy(*LABEL)
        .agg(F.min("appended").alias("since"), F.countDistinct("fingerprint").alias("fingerprints"))
        .filter(F.col("fingerprints") > 1)
        .withColumn("status", F.lit(AMBIGUOUS))
        .drop("fingerprints")
    )


def ranges(labelled: DataFrame) -> DataFrame:
    """Return labels as ranges, for `merged`; malformed ones are left out.

    They are merged in blocks, since the window over an epoch of many millions would exceed an executor's memory.
    """
    sequence = F.col("sequence")
    whole = labelled.filter(is_count(sequence))
    single = whole.select(*EPOCH, "status", sequence.alias("first"), sequence.alias("last"), "since")
    blocks = single.withColumn("block", F.shiftright("first", BLOCK_BITS))
    return merged(blocks, (*EPOCH, "status", "block")).select(*RANGE)


def merged(parts: DataFrame, by: tuple[str, ...] = (*EPOCH, "status")) -> DataFrame:
    """Merge ranges that are adjacent or overlap; `since` is the earliest."""
    order = Window.partitionBy(*by).orderBy("first", "last")
    before = F.max("last").over(order.rowsBetween(Window.unboundedPreceding, -1))
    starts = F.coalesce(F.col("first") > before + 1, F.lit(True)).cast("int")
    island = F.sum("starts").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return (
        parts.withColumn("starts", starts)
        .withColumn("island", island)
        .groupBy(*by, "island")
        .agg(F.min("first").alias("first"), F.max("last").alias("last"), F.min("since").alias("since"))
        .drop("island")
    )


def without(parts: DataFrame, healed: DataFrame) -> DataFrame:
    """Return ranges without single labels, such as those that have arrived meanwhile."""
    single = parts.select(*EPOCH, "status", F.explode(F.sequence("first", "last")).alias("sequence"), "since")
    return ranges(single.join(healed.select(*LABEL), on=list(LABEL), how="left_anti"))


def unaccounted(covered: DataFrame, rows: DataFrame) -> DataFrame:
    """Return the rows with labels that no audit has accepted, though their records were read or cannot exist.

    Only epochs with more rows than accepted labels are searched.
    """
    accepted = covered.filter(F.col("status") == ACCEPTED).select(*EPOCH, "first", "last")
    sizes = accepted.groupBy(*EPOCH).agg(F.sum(F.col("last") - F.col("first") + 1).alias("size"))
    whole = rows.fillna({"gateway": "", "epoch": "", "sequence": -1})
    there = whole.groupBy(*EPOCH).agg(F.countDistinct("sequence").alias("there"))
    long = there.join(sizes, on=list(EPOCH), how="left").filter(F.col("there") > F.coalesce("size", F.lit(0)))
    suspects = whole.join(F.broadcast(long.select(*EPOCH)), on=list(EPOCH), how="left_semi").alias("s")
    of_epoch = (F.col("s.gateway") == F.col("a.gateway")) & (F.col("s.epoch") == F.col("a.epoch"))
    is_accepted = of_epoch & F.col("s.sequence").between(F.col("a.first"), F.col("a.last"))
    found = suspects.join(accepted.alias("a"), on=is_accepted, how="left_anti")
    return found.withColumns({"status": F.lit(UNACCOUNTED), "device": F.lit(None).cast("string")})


def is_before(ends: Mapping[int, int]) -> Column:
    """Whether a row's record is before these offsets of its partition; never null."""
    of_each = (
        (F.col("kafka_partition") == partition) & (F.col("kafka_offset") < end) for partition, end in ends.items()
    )
    return F.coalesce(reduce(lambda one, other: one | other, of_each, F.lit(False)), F.lit(False))


def vanished(covered: DataFrame, rows: DataFrame, ends: Mapping[int, int]) -> DataFrame:
    """Return the labels accepted by this or an earlier audit that have no row in the table now.

    Only epochs with fewer rows than accepted labels are searched. Rows of records that no audit has read are not
    counted: a job that runs writes them meanwhile, and they would take the places of the vanished ones. `ends` are the
    offsets up to which records were read, by partition.
    """
    accepted = covered.filter(F.col("status") == ACCEPTED)
    sizes = accepted.groupBy(*EPOCH).agg(F.sum(F.col("last") - F.col("first") + 1).alias("size"))
    there = rows.filter(is_before(ends)).groupBy(*EPOCH).agg(F.countDistinct("sequence").alias("there"))
    short = sizes.join(there, on=list(EPOCH), how="left").filter(F.col("size") > F.coalesce("there", F.lit(0)))
    suspect = accepted.join(F.broadcast(short.select(*EPOCH)), on=list(EPOCH), how="left_semi")
    return without(suspect, rows).withColumn("status", F.lit(VANISHED)).select(*RANGE)


def with_vanished(covered: DataFrame, lost: DataFrame) -> DataFrame:
    """Return the ranges with vanished labels marked as such, instead of accepted."""
    labels_ = lost.select(*EPOCH, F.explode(F.sequence("first", "last")).alias("sequence"))
    touched = lost.select(*EPOCH).distinct()
    is_accepted = F.col("status") == ACCEPTED
    kept = without(covered.filter(is_accepted).join(touched, on=list(EPOCH), how="left_semi"), labels_)
    others = covered.filter(is_accepted).join(touched, on=list(EPOCH), how="left_anti")
    parts = (covered.filter(~is_accepted), others, kept, lost)
    return merged(reduce(DataFrame.unionByName, (part.select(*RANGE) for part in parts)))


def declared(gateway_events: DataFrame) -> DataFrame:
    """Return the ranges of the gaps that gateways have declared; `gateway_events` is that of the table's view."""
    label = F.from_json(F.col("data"), "labels array<array<string>>")["labels"]
    gaps = gateway_events.filter(F.col("type") == "gateway.gap")
    one = gaps.select("gateway", F.explode(label).alias("label"), "appended")
    return one.select(
        "gateway",
        F.get("label", F.lit(0)).alias("epoch"),
        F.lit(GAP).alias("status"),
        F.get("label", F.lit(1)).try_cast("bigint").alias("first"),
        F.get("label", F.lit(2)).try_cast("bigint").alias("last"),
        F.col("appended").alias("since"),
    ).filter(is_count(F.col("first")) & is_count(F.col("last")) & (F.col("first") <= F.col("last")))


def endings(gateway_events: DataFrame) -> DataFrame:
    """Return the last sequence of each epoch, and the number of its followers, as later epochs state them."""
    data = F.from_json(F.col("data"), "previous_epoch string, previous_sequence bigint")
    return (
        gateway_events.filter(F.col("type") == "gateway.started")
        .select("gateway", data["previous_epoch"].alias("epoch"), data["previous_sequence"].alias("ends"), "appended",
                F.col("epoch").alias("next"))
        .filter(F.col("epoch").isNotNull() & is_count(F.col("ends")))
        .groupBy(*EPOCH)
        .agg(F.max("ends").alias("ends"), F.countDistinct("next").alias("followers"), F.min("appended").alias("since"))
    )  # fmt: skip


def holes(covered: DataFrame, ended: DataFrame) -> DataFrame:
    """Return the labels not covered: before and between ranges, and after the last one up to the epoch's end."""
    seen = covered.groupBy(*EPOCH).agg(F.max("last").alias("seen"))
    beyond = (F.col("ends") + 1).alias("first"), (F.col("ends") + 1).alias("last")
    tails = ended.join(seen, on=list(EPOCH), how="left").filter(F.col("ends") > F.coalesce("seen", F.lit(0)))
    ends = tails.select(*EPOCH, *beyond, "since")
    parts = merged(covered.select(*EPOCH, "first", "last", "since").unionByName(ends), EPOCH)
    before = F.lag("last", 1, 0).over(Window.partitionBy(*EPOCH).orderBy("first"))
    between = parts.withColumn("before", before).filter(F.col("first") > F.col("before") + 1)
    return between.select(*EPOCH, (F.col("before") + 1).alias("first"), (F.col("first") - 1).alias("last"), "since")


def overdue(open_: DataFrame, now: Column, grace_seconds: int) -> DataFrame:
    """Return holes as missing where what follows is older than the grace period, else as pending."""
    old = F.unix_seconds("since") <= F.unix_seconds(now) - grace_seconds
    return open_.withColumn("status", F.when(old, MISSING).otherwise(PENDING)).select(*RANGE)


def states(all_ranges: DataFrame, ended: DataFrame) -> DataFrame:
    """Return each epoch's state, one of STATES, with its counts."""
    size = F.col("last") - F.col("first") + 1
    status = F.when(F.col("status").isin(UNWRITTEN, VANISHED), MISSING).otherwise(F.col("status"))
    counts = [F.coalesce(F.sum(F.when(status == name, size)), F.lit(0)).alias(name) for name in COUNTED]
    per = all_ranges.groupBy(*EPOCH).agg(*counts, F.max("last").alias("last")).join(ended, on=list(EPOCH), how="left")
    # Labels beyond the end that the successor states, or a second successor, come from another copy of the store.
    forked = (F.col("followers") > 1) | (F.col("last") > F.col("ends"))
    whole = F.col("ends").isNotNull() & (F.col(MISSING) + F.col(PENDING) == 0)
    state = F.when(F.coalesce(forked, F.lit(False)), FORKED).when(whole, COMPLETE).otherwise(OPEN)
    return per.withColumn("state", state).select(*EPOCH, "state", "last", *COUNTED)
