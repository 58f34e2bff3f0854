"""The metadata of a commit of the table: its owner, how far the table has read the topic, and its counts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cloud.errors import StopError
from cloud.table.freshness import Horizon, latest_ahead
from cloud.table.id_reuse import is_without_time
from cloud.table.lookup import Search
from cloud.table.rows import day_of
from contract.record import Shared

FORMAT = 1
BATCH_BITS = 40
CLAIM_ONLY = -1
"""The batch id of the empty commit by which a checkpoint claims the table."""

Offsets = dict[int, int]


@dataclass(frozen=True, slots=True)
class Commit:
    """The userMetadata of a commit; offsets by partition, times in milliseconds since 1970 UTC."""

    table: str
    checkpoint: str
    claim: int
    batch: int
    topic: str
    topic_id: str
    starts: Offsets
    ends: Offsets
    """Offsets at which reading continues: the table or the quarantine has all records from `first` up to here."""
    first: Offsets
    birth: int | None = None
    """Since when this checkpoint's state contains every record, with a time that is not too early; None if never."""
    window_seconds: int | None = None
    epochs: Offsets = field(default_factory=dict)
    """The leader epochs under which the log had all records up to `ends`, of partitions where they are known."""

    @property
    def version(self) -> int:
        """Return the txnVersion, which grows with each claim and each batch; a claim's own is below its batches'."""
        return self.claim << BATCH_BITS | (self.batch + 1)

    def born_after(self, time_ms: int | None) -> Commit:
        """Return the commit with a birth not earlier than `time_ms`; unchanged for None."""
        return self if time_ms is None else replace(self, birth=max(time_ms, self.birth or time_ms))

    def is_by_same(self, other: Commit) -> bool:
        """Whether both describe the same batch under the same claim."""
        return (self.checkpoint, self.claim, self.batch) == (other.checkpoint, other.claim, other.batch)


def to_json(commit: Commit) -> str:
    """Return the userMetadata."""
    return json.dumps({"oncegate": FORMAT, **asdict(commit)}, separators=(",", ":"), sort_keys=True)


def parse(metadata: str | None) -> Commit | None:
    """Read the userMetadata; None where the job has not written it (OPTIMIZE, another program's statement)."""
    try:
        fields = json.loads(metadata or "null")
    except ValueError:
        return None
    if not isinstance(fields, dict) or "oncegate" not in fields:
        return None
    if (written := fields.pop("oncegate")) != FORMAT:
        raise StopError(f"the table's commits have format {written}, this job supports {FORMAT}: use a newer job")
    for name in ("starts", "ends", "first", "epochs"):
        fields[name] = {int(partition): int(offset) for partition, offset in fields[name].items()}
    return Commit(**fields)


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
