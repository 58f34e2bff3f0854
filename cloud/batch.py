"""One batch, from the survivors of the dedup to the table's commit and its receipts."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cloud import census, lookup, offsets, quarantine
from cloud.checkpoint import Checkpoint, Planned
from cloud.commits import Commit
from cloud.delta_table import Table
from cloud.errors import JobError, StopError
from cloud.freshness import Horizon, is_fresh
from cloud.offsets import Standing
from cloud.receipts import Receipts
from cloud.rows import decode

logger = logging.getLogger(__name__)

_LATE_OR_BAD = "oncegate: this batch has a late or a bad row"


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about the events of a batch."""

    window_seconds: int
    retention_seconds: int


class BatchWriter:
    """Write batches one after the other; called by Spark, each time it starts with the batch that is not done yet."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        table: Table,
        quarantine_table: Table,
        receipts: Receipts,
        last: Commit,
        rules: Rules,
    ) -> None:
        self._checkpoint = checkpoint
        self._table = table
        self._quarantine_table = quarantine_table
        self._receipts = receipts
        self._last = last
        self._rules = rules
        self._expects_fresh = False
        """The latest batch had neither late nor bad rows: a guess about the next one, for speed alone."""
        self.busy = threading.Lock()
        """Held while a batch is written."""
        self.error: JobError | None = None
        """What has ended the job; Spark passes on only its text."""

    def __call__(self, survivors: DataFrame, batch: int) -> None:
        """Write one batch; a second call with the same batch changes nothing."""
        with self.busy:
            try:
                self._do(survivors, batch)
            except JobError as error:
                self.error = error
                raise

    def _do(self, survivors: DataFrame, batch: int) -> None:
        planned = self._checkpoint.planned(batch)
        planned = replace(planned, starts=offsets.complete_starts(planned.starts, planned.ends))
        logger.info("batch=%d stage=planned offsets=%d", batch, _size(planned))
        check_clock(planned)
        standing = offsets.compare(planned.starts, planned.ends, self._last)
        if standing is Standing.DONE:
            consume(survivors)
            logger.info("batch=%d stage=skipped", batch)
        else:
            self._last = self._write(survivors, planned, standing)
        self._receipts.give(self._last)

    def _write(self, survivors: DataFrame, planned: Planned, standing: Standing) -> Commit:
        commit = next_commit(self._last, planned, self._rules.window_seconds)
        horizon = Horizon(
            planned.time, commit.birth or planned.time, self._rules.window_seconds, standing is Standing.OVERLAPS
        )
        judged = survivors.withColumn("fresh", is_fresh(horizon))
        written = self._write_in_one_pass(judged, commit) if self._expects_fresh else None
        if written is None:
            written = self._write_with_look_up(judged, commit)
        logger.info("batch=%d stage=committed rows=%d", commit.batch, written)
        return commit

    def _write_in_one_pass(self, judged: DataFrame, commit: Commit) -> int | None:
        """Write, or give None at the first row that is late or bad; then nothing is committed."""
        logger.info("batch=%d stage=write passes=1", commit.batch)
        is_plain = F.col("reason").isNull() & F.col("fresh")
        plain = judged.filter(
            F.when(is_plain, F.lit(True)).otherwise(F.raise_error(F.lit(_LATE_OR_BAD)).cast("boolean"))
        )
        try:
            return self._table.append(decode(plain), commit)
        except (PySparkException, Py4JJavaError) as error:
            if _LATE_OR_BAD not in str(error):
                raise
            return None

    def _write_with_look_up(self, judged: DataFrame, commit: Commit) -> int:
        """Quarantine, look up, write.

        Which of two copies is kept may differ between evaluations, should a persisted part be lost. That changes
        nothing: where one of the copies is fresh, the table has none, and the append is one evaluation of its own.
        """
        judged = judged.persist()
        try:
            counts = census.count(judged)
            logger.info(
                "batch=%d stage=read rows=%d late=%d bad=%d", commit.batch, counts.rows, counts.late, counts.bad
            )
            self._expects_fresh = not counts.late and not counts.bad
            good = judged.filter(F.col("reason").isNull())
            late = good.filter(~F.col("fresh"))
            found = self._look_up(late, counts, commit)
            reused = self._reused_ids(late, found, counts)
            if counts.bad or reused is not None:
                self._quarantine(quarantine.bad_records(judged), reused, commit)
            logger.info("batch=%d stage=write passes=2", commit.batch)
            return self._table.append(decode(lookup.without_found(good, found)), commit)
        finally:
            judged.unpersist()

    def _look_up(self, late: DataFrame, counts: census.Census, commit: Commit) -> lookup.Found | None:
        if not counts.late:
            return None
        logger.info("batch=%d stage=look-up rows=%d", commit.batch, counts.late)
        found = lookup.find(late, self._table.rows(), counts.late_days)
        logger.info("batch=%d stage=looked-up found=%d", commit.batch, found.count)
        return found

    def _reused_ids(self, late: DataFrame, found: lookup.Found | None, counts: census.Census) -> DataFrame | None:
        if found is None or not found.count or counts.late_days is not None:
            return None
        reused = quarantine.reused_ids(late, found.rows, self._rules.retention_seconds)
        return None if reused.isEmpty() else reused

    def _quarantine(self, bad: DataFrame, reused: DataFrame | None, commit: Commit) -> None:
        logger.info("batch=%d stage=quarantine", commit.batch)
        records = bad if reused is None else bad.unionByName(reused.select(bad.columns))
        written = quarantine.put(self._quarantine_table, records, commit)
        logger.info("batch=%d stage=quarantined rows=%d", commit.batch, written)


def check_clock(planned: Planned) -> None:
    """Refuse a batch in which Spark drops everything: its time is not above the watermark."""
    if planned.time <= planned.watermark:
        raise StopError(
            f"batch {planned.batch}: its time {planned.time} is not above the watermark {planned.watermark} (ms): the "
            "driver's clock has gone back, and Spark has dropped events unseen. Nothing of this batch is in the table "
            "or receipted. Set the clock right, and start with a new checkpoint"
        )


def next_commit(last: Commit, planned: Planned, window_seconds: int) -> Commit:
    """Say what the table will have read after this batch."""
    is_born_anew = last.birth is None or last.window_seconds is None or window_seconds > last.window_seconds
    return replace(
        last,
        batch=planned.batch,
        starts=planned.starts,
        # Where a batch overlaps, the table may have read further in some partitions than the batch does.
        ends={**planned.ends, **{p: max(end, planned.ends[p]) for p, end in last.ends.items()}},
        first=offsets.merge_first(last.first, planned.starts),
        birth=planned.time if is_born_anew else last.birth,
        window_seconds=window_seconds,
    )


def consume(survivors: DataFrame) -> None:
    """Evaluate the batch for its state alone."""
    survivors.write.format("noop").mode("append").save()


def _size(planned: Planned) -> int:
    return sum(end - planned.starts[partition] for partition, end in planned.ends.items())
