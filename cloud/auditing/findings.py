"""The findings of an audit: counts, and the labels and events that are wrong."""

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cloud.auditing import account, forgery, sections
from cloud.auditing.settings import AuditSettings
from cloud.auditing.store import Series, TopicSpan

NAMED_MAX = 1000
"""The number of findings of each kind that are listed; the audit's tables have all."""
RANGE = (*account.EPOCH, "first", "last", "status")
RECORD = ("status", *account.PLACE, "fingerprint", "device", *account.LABEL)


@dataclass(frozen=True, slots=True)
class Subject:
    """What was audited, when, by which versions, and with which settings."""

    ended: datetime
    series: Series
    version: str
    spark: str
    settings: AuditSettings
    span: TopicSpan


@dataclass(frozen=True, slots=True)
class Findings:
    """The outcome of an audit; lists have at most NAMED_MAX entries, counts are complete."""

    subject: Subject
    counts: dict[str, int]
    """Labels of all audits by status."""
    epochs: list[Row]
    """Those of `account.states`."""
    wrong: list[Row]
    """Ranges of labels that are wrong, as RANGE."""
    records: list[Row]
    """Where topic or table have the records of wrong labels, as RECORD; of a missing label there is none."""
    doubled: list[str]
    """Fingerprints that the table has more than once."""
    sections: dict[str, tuple[int, int]]
    """How many sections of the gateways' hash chains there are, and how many labels they have, by status."""
    section_labels: dict[tuple[str, str], dict[str, int]]
    """The labels of each epoch in `epochs` by the status of their section."""
    differing: list[Row]
    """The sections of which the table differs from what the gateway has stated, as RANGE."""
    totals: dict[str, int]
    """How many entries the lists would have without a limit, and how many records are unwritten."""
    states: dict[str, int]
    """Epochs by state."""

    @property
    def unwritten(self) -> list[Row]:
        """Return the receipted records that are neither in the table nor in quarantine."""
        return [one for one in self.records if one.status == account.UNWRITTEN]

    @property
    def missing(self) -> int:
        """Return how many labels are missing, unwritten or vanished."""
        return sum(self.counts.get(status, 0) for status in (account.MISSING, account.UNWRITTEN, account.VANISHED))

    def faults(self) -> dict[str, int]:
        """Return the number of faults of each kind; each name begins with what is counted, in the singular."""
        return {
            "label missing": self.missing,
            "record unwritten": self.totals["unwritten"],
            "event doubled": self.totals["doubled"],
            "row unaccounted for": self.totals[account.UNACCOUNTED],
            "event in conflict": self.totals.get(forgery.CONFLICT, 0),
            "row forged": self.totals.get(forgery.FORGED, 0),
            "label with two fingerprints": self.counts.get(account.AMBIGUOUS, 0),
            "section different": self.sections.get(sections.DIFFERS, (0, 0))[0],
        }

    @property
    def is_whole(self) -> bool:
        """Whether no label is wrong, no event is doubled, forged or in conflict, and no section differs."""
        return not any(self.faults().values())


@dataclass(frozen=True, slots=True)
class Named:
    """Further records that are to be named."""

    located: DataFrame
    """Those of wrong labels, each with its label's status."""
    unaccounted: DataFrame
    """The rows of no record."""
    forgeries: DataFrame
    """Those of `auditing.forgery`."""
    counts: dict[str, int]
    """How many records were verified, forged and unverifiable, and how many rows are forged or in conflict."""


def find(
    judged: DataFrame,
    rows: DataFrame,
    ranges: DataFrame,
    states: DataFrame,
    compared: DataFrame,
    named: Named,
    subject: Subject,
) -> Findings:
    """Collect the findings from the audit's frames."""
    counts = {row["status"]: int(row["labels"]) for row in ranges.groupBy("status").agg(_labels()).collect()}
    bad = ranges.filter(F.col("status").isin(account.MISSING, account.UNWRITTEN, account.VANISHED, account.AMBIGUOUS))
    unwritten = judged.filter(F.col("status") == account.UNWRITTEN)
    whole_last = (F.col("state") != account.FORKED, F.col("state") == account.COMPLETE)
    worst = states.orderBy(F.desc("missing"), *whole_last, *account.EPOCH).limit(NAMED_MAX)
    by_state = {row["state"]: row["count"] for row in states.groupBy("state").count().collect()}
    doubled = account.doubled(rows).localCheckpoint()
    twice = doubled.count()
    unaccounted = named.unaccounted.localCheckpoint()
    frames = [unwritten, named.located, named.forgeries, unaccounted]
    if twice:  # a further pass over the table
        copies = rows.join(F.broadcast(doubled.limit(NAMED_MAX)), on="fingerprint", how="left_semi")
        frames.append(copies.withColumns({"status": F.lit("doubled"), "device": F.lit(None).cast("string")}))
    by_status, per_epoch, differing = _sections(compared, worst)
    ordered = (frame.select(*RECORD).orderBy("status", *account.PLACE).limit(NAMED_MAX) for frame in frames)
    records = [record for frame in ordered for record in frame.collect()]
    all_unwritten = unwritten.count()
    totals = {
        "wrong": bad.count(),
        "epochs": sum(by_state.values()),
        "unwritten": all_unwritten,
        "records": max(0, all_unwritten - NAMED_MAX) + len(records),
        "doubled": twice,
        account.UNACCOUNTED: unaccounted.count(),
        **{status: named.counts.get(status, 0) for status in forgery.STATUSES},
    }
    return Findings(
        subject,
        counts,
        worst.collect(),
        _ranges(bad.orderBy("status", *account.EPOCH, "first")),
        records,
        [row["fingerprint"] for row in doubled.limit(NAMED_MAX).collect()],
        by_status,
        per_epoch,
        differing,
        totals,
        by_state,
    )


def _labels() -> Column:
    """Return the sum of the ranges' labels; as a decimal, since that of many epochs may exceed 64 bits."""
    return F.sum((F.col("last") - F.col("first") + 1).cast("decimal(20)")).alias("labels")


def to_locate(ranges: DataFrame) -> DataFrame:
    """Return labels that have vanished or are ambiguous, whose records are to be found in the topic."""
    wrong = ranges.filter(F.col("status").isin(account.VANISHED, account.AMBIGUOUS))
    sequence = F.explode(F.sequence("first", F.least("last", F.col("first") + (NAMED_MAX - 1)))).alias("sequence")
    return wrong.select(*account.EPOCH, sequence, "status").limit(NAMED_MAX)


def _sections(
    compared: DataFrame, named: DataFrame
) -> tuple[dict[str, tuple[int, int]], dict[tuple[str, str], dict[str, int]], list[Row]]:
    counts = {
        row["status"]: (row["sections"], int(row["labels"]))
        for row in compared.groupBy("status").agg(F.count("*").alias("sections"), _labels()).collect()
    }
    epochs = named.select(*account.EPOCH)
    per_epoch: dict[tuple[str, str], dict[str, int]] = {}
    per_status = compared.join(epochs, on=list(account.EPOCH), how="left_semi").groupBy(*account.EPOCH, "status")
    for row in per_status.agg(_labels()).collect():
        per_epoch.setdefault((row["gateway"], row["epoch"]), {})[row["status"]] = int(row["labels"])
    differing = compared.filter(F.col("status") == sections.DIFFERS).orderBy(*account.EPOCH, "first")
    return counts, per_epoch, _ranges(differing)


def _ranges(frame: DataFrame) -> list[Row]:
    return frame.select(*RANGE).limit(NAMED_MAX).collect()
