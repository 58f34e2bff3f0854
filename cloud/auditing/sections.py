"""The sections of the gateways' hash chains: functions from data frames to data frames.

`leaves` have gateway, epoch, sequence and leaf (`auditing.leaves`). Sections have gateway, epoch, first, last, digest
(hex), status, and whether a record that its gateway has signed states them.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cloud.auditing import account
from cloud.auditing.account import EPOCH, LABEL, is_count
from contract.fields import VERSION

VERIFIED, DIFFERS, UNKNOWN = "verified", "differs", "unknown"
INCOMPLETE, PENDING, UNSTATED = "incomplete", "pending", "unstated"
STATUSES = (VERIFIED, DIFFERS, INCOMPLETE, UNKNOWN, PENDING, UNSTATED)
_MISSING = (account.MISSING, account.UNWRITTEN, account.VANISHED)
_WITH_ROW = (account.ACCEPTED, account.AMBIGUOUS)
"""No other status says that there is a row: not that of a gap, a duplicate or the quarantine, nor a newer audit's."""
STATEMENT = (*EPOCH, "first", "last", "digest")
STATED = (*STATEMENT, "signed")
SECTION = (*STATED, "status")
LABELS_MAX = 1 << 20
"""More than any section has: a statement about more labels is wrong."""
_BLOCK_BITS = 12
_STATED = """
    previous_epoch string, previous_first bigint, previous_sequence bigint, previous_digest string,
    first bigint, last bigint, digest string
"""


def stated(gateway_events: DataFrame, *, signed: bool = False) -> DataFrame:
    """Return the sections that gateways have stated, without a status; `signed`: in records with their MAC."""
    data, is_start = F.from_json(F.col("data"), _STATED), F.col("type") == "gateway.started"
    of_start = {"first": "previous_first", "last": "previous_sequence", "digest": "previous_digest"}
    own = gateway_events.filter(is_start | (F.col("type") == "gateway.checkpoint"))
    return own.select(
        "gateway",
        F.when(is_start, data["previous_epoch"]).otherwise(F.col("epoch")).alias("epoch"),
        *(F.when(is_start, data[before]).otherwise(data[name]).alias(name) for name, before in of_start.items()),
        F.lit(signed).alias("signed"),
    ).filter(
        F.col("epoch").isNotNull()
        & is_count(F.col("first"))
        & is_count(F.col("last"))
        & (F.col("first") <= F.col("last"))
        & F.col("digest").isNotNull()
    )


def have_newer(gateway_events: DataFrame) -> bool:
    """Whether a gateway has stated a newer contract than is known here."""
    contract = F.get_json_object("data", "$.contract").try_cast("int")
    return not gateway_events.filter((F.col("type") == "gateway.started") & (contract > VERSION)).isEmpty()


def as_stated(leaves: DataFrame, newer: DataFrame) -> DataFrame:
    """Return the leaves of rows; of records with keys unknown here, as their gateways have hashed them.

    `newer` are the leaves of such records, and those that their rows must have. It is null where copies differ.
    """
    if newer.isEmpty():
        return leaves
    found = newer.groupBy(*LABEL, F.col("row_leaf").alias("leaf")).agg(F.collect_set("leaf").alias("found"))
    joined = leaves.join(found, on=[*LABEL, "leaf"], how="left")
    whole = F.when(F.size("found") == 1, F.get("found", F.lit(0)))
    return joined.select(*LABEL, F.when(F.col("found").isNull(), F.col("leaf")).otherwise(whole).alias("leaf"))


def compared(statements: DataFrame, leaves: DataFrame, others: DataFrame, ranges: DataFrame) -> DataFrame:
    """Return each section with its status.

    `others` are the leaves of labels without a row: of duplicates and of records in quarantine. `ranges` are the labels
    by status. A section with a label that was accepted once and has no row now differs; where the label is missing or
    pending, the section is incomplete or pending; where its event is declared as lost, or its row has no leaf since its
    content was erased, the digest is unknown.
    """
    has_leaf = F.col("leaf").isNotNull()
    of_rows, erased = leaves.filter(has_leaf).select(*LABEL, "leaf"), leaves.filter(~has_leaf).select(*LABEL).distinct()
    # A record may be in the topic several times; where its copies differ, the leaf is not known.
    distinct = others.groupBy(*LABEL).agg(F.collect_set("leaf").alias("found")).filter(F.size("found") == 1)
    of_others = distinct.select(*LABEL, F.get("found", F.lit(0)).alias("leaf"))
    known = of_rows.unionByName(of_others.join(of_rows.select(*LABEL), on=list(LABEL), how="left_anti"))
    members = _members(statements.groupBy(*STATEMENT).agg(F.max("signed").alias("signed")), known)
    size = F.col("last") - F.col("first") + 1
    has_all = F.size(F.array_distinct(F.transform("members", lambda one: one["sequence"]))) == size
    following = F.aggregate(
        "members",
        F.lit(bytes(32)),
        lambda digest, one: F.unhex(F.sha2(F.concat(digest, one["leaf"]), 256)),
    )
    judged = members.withColumn(
        "status",
        F.when(size > LABELS_MAX, DIFFERS)
        .when(~has_all, None)
        .when((F.size("members") == size) & (F.lower(F.hex(following)) == F.lower("digest")), VERIFIED)
        .otherwise(DIFFERS),
    )
    short = _without_all(judged.filter(F.col("status").isNull()), ranges, erased)
    whole = judged.filter(F.col("status").isNotNull())
    return whole.select(*SECTION).unionByName(short.select(*SECTION))


def vouched(compared: DataFrame) -> DataFrame:
    """Set verified sections to unknown where no later signed record vouches for them.

    A statement is itself an event of the next section: if that is verified and vouched for, the statement is, too.
    """
    order = Window.partitionBy(*EPOCH).orderBy("first", "last")
    run = Window.partitionBy(*EPOCH, "run")
    verified = compared.filter(F.col("status") == VERIFIED)
    begins = (F.col("first") != F.lag("last").over(order) + 1).cast("int")
    runs = verified.withColumn("begins", F.coalesce(begins, F.lit(1))).withColumn("run", F.sum("begins").over(order))
    signed_to = F.max(F.when(F.col("signed"), F.col("first"))).over(run)
    status = F.when(F.col("first") <= signed_to, VERIFIED).otherwise(UNKNOWN)
    others = compared.filter(F.col("status") != VERIFIED)
    return runs.withColumn("status", status).select(*SECTION).unionByName(others)


def _members(statements: DataFrame, leaves: DataFrame) -> DataFrame:
    """Add to each section its labels with their leaves, in order.

    Labels are joined by blocks, since a join by epoch alone would compare each label with all sections of its epoch.
    """
    block = F.explode(F.sequence(F.shiftright("first", _BLOCK_BITS), F.shiftright("last", _BLOCK_BITS)))
    usable = F.col("last") - F.col("first") < LABELS_MAX
    blocks = statements.filter(usable).withColumn("block", block)
    placed = leaves.select(*LABEL, "leaf").withColumn("block", F.shiftright("sequence", _BLOCK_BITS))
    found = (
        placed.join(blocks, on=[*EPOCH, "block"], how="inner")
        .filter(F.col("sequence").between(F.col("first"), F.col("last")))
        .groupBy(*STATEMENT)
        .agg(F.sort_array(F.collect_list(F.struct("sequence", "leaf"))).alias("members"))
    )
    empty = F.array().cast("array<struct<sequence:bigint,leaf:binary>>")
    joined = statements.join(found, on=list(STATEMENT), how="left")
    return joined.withColumn("members", F.coalesce("members", empty))


def _without_all(short: DataFrame, ranges: DataFrame, erased: DataFrame) -> DataFrame:
    """Return the status of sections in which some labels have no leaf."""
    there = F.transform("members", lambda one: one["sequence"])
    lacking = short.select(*STATED, F.explode(F.array_except(F.sequence("first", "last"), there)).alias("sequence"))
    # By their labels: of an epoch each of those that are lacking would be compared with each that was erased.
    marked = erased.select(*LABEL, F.lit(account.GAP).alias("erased"))
    known = ranges.select(*EPOCH, F.col("status").alias("of"), F.col("first").alias("from"), F.col("last").alias("to"))
    within = F.col("sequence").between(F.col("from"), F.col("to"))
    named = (
        lacking.join(marked, on=list(LABEL), how="left")
        .alias("l")
        .join(
            known.alias("r"),
            on=(F.col("l.gateway") == F.col("r.gateway")) & (F.col("l.epoch") == F.col("r.epoch")) & within,
            how="left",
        )
    )
    of = F.coalesce("erased", "of")
    without_row, missing = (
        F.max(F.coalesce(one, F.lit(False)))
        for one in (~of.isin(*_WITH_ROW, *_MISSING, account.PENDING), of.isin(*_MISSING))
    )
    is_pending = F.max(of.isNull() | (of == account.PENDING))
    order = (UNKNOWN, PENDING, INCOMPLETE, DIFFERS)
    rank = F.when(without_row, 0).when(missing, 2).when(is_pending, 1).otherwise(3).alias("rank")
    return (
        named.groupBy(*(F.col(f"l.{name}").alias(name) for name in (*STATED, "sequence")))
        .agg(rank)
        .groupBy(*STATED)
        .agg(F.element_at(F.array(*map(F.lit, order)), F.max("rank") + 1).alias("status"))
    )


def uncovered(sections: DataFrame, states: DataFrame, ended: DataFrame) -> DataFrame:
    """Return the labels that no section covers.

    They are unstated where a later event of their epoch may still state the digest, else unknown.
    """
    covers = sections.select(*EPOCH, "first", "last", F.lit(None).cast("timestamp").alias("since"))
    holes = account.holes(covers, ended).select(*EPOCH, "first", "last", F.lit(UNKNOWN).alias("status"))
    stated_to = sections.groupBy(*EPOCH).agg(F.max("last").alias("stated_to"))
    tails = (
        states.join(stated_to, on=list(EPOCH), how="left")
        .join(ended.select(*EPOCH), on=list(EPOCH), how="left_anti")
        .select(*EPOCH, (F.coalesce("stated_to", F.lit(0)) + 1).alias("first"), "last", F.lit(UNSTATED).alias("status"))
        .filter(F.col("first") <= F.col("last"))
    )
    parts = holes.unionByName(tails)
    parts = parts.withColumns({"digest": F.lit(None).cast("string"), "signed": F.lit(None).cast("boolean")})
    return parts.select(*SECTION)
