"""One batch, from the survivors of the dedup to the table's commit and its receipts."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from pyspark.sql import DataFrame

from cloud import offsets
from cloud.checkpoint import Checkpoint, Planned
from cloud.commits import Commit
from cloud.errors import JobError, StopError
from cloud.freshness import Horizon
from cloud.offsets import Standing
from cloud.receipts import Receipts
from cloud.sink import Sink
from cloud.watching import Watcher

logger = logging.getLogger(__name__)


class BatchWriter:
    """Write batches one after the other; called by Spark, each time it starts with the batch that is not done yet."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        sink: Sink,
        receipts: Receipts,
        last: Commit,
        window_seconds: int,
        *,
        watcher: Watcher,
    ) -> None:
        self._checkpoint = checkpoint
        self._sink = sink
        self._receipts = receipts
        self._last = last
        self._window_seconds = window_seconds
        self._watcher = watcher
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
        if self._receipts.give(self._last):
            self._watcher.receipted(batch)

    def _write(self, survivors: DataFrame, planned: Planned, standing: Standing) -> Commit:
        commit = next_commit(self._last, planned, self._window_seconds)
        horizon = Horizon(
            planned.time, commit.birth or planned.time, self._window_seconds, standing is Standing.OVERLAPS
        )
        written = self._sink.write(survivors, commit, horizon)
        logger.info("batch=%d stage=committed rows=%d", commit.batch, written.rows)
        self._watcher.written(commit.batch, written)
        return commit


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
