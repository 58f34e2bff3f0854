"""One batch: from the survivors of the dedup to the table's commit and the receipts."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from cloud.errors import EndingError, JobError, RestartError, StopError
from cloud.stream import offsets
from cloud.stream.checkpoint import Checkpoint, PlannedBatch
from cloud.stream.offsets import Overlap
from cloud.stream.progress import Observer
from cloud.stream.receipts import Receipts
from cloud.stream.topic_log import TopicLog
from cloud.table.commits import Commit, Offsets
from cloud.table.freshness import Horizon, latest_ahead
from cloud.table.sink import Sink

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BatchWriter:
    """Writes batches, one after the other; Spark calls it, after a restart with the batch that is not done yet."""

    _checkpoint: Checkpoint
    _sink: Sink
    _receipts: Receipts
    _last: Commit
    _window_seconds: int
    _log: TopicLog
    _observer: Observer
    _effects: Callable[[Commit], bool] = lambda _: True
    _are_keys_renewed: Callable[[], bool] = bool
    _busy: threading.Lock = field(init=False)
    """Held while a batch is being written."""
    _closed: bool = False
    error: JobError | None = None
    """The error that ended the query, of which Spark passes on only the text."""
    _leader_epochs: Offsets = field(default_factory=dict)
    """The leader epochs under which the query's consumers read, queried before they fetched the first record."""

    def __post_init__(self) -> None:
        self._busy = threading.Lock()

    def begin_query(self) -> None:
        """Prepare for a query with new consumers, which hold no records of an earlier leader."""
        self.error = None
        self._leader_epochs = {}

    def close(self) -> None:
        """Wait for the current batch, and refuse later ones.

        A query begins further batches until it is stopped, and its stop waits for them: neither may wait for the other.
        """
        with self._busy:
            self._closed = True

    def __call__(self, survivors: DataFrame, batch: int) -> None:
        """Write one batch; a second call with the same batch changes nothing. Raise EndingError after `close`."""
        with self._busy:
            try:
                if self._closed:
                    raise EndingError(f"batch {batch}: the job is ending, and its next start writes the batch")
                self._write_or_skip(survivors, batch)
            except JobError as error:
                self.error = error
                raise

    def _write_or_skip(self, survivors: DataFrame, batch: int) -> None:
        if self._are_keys_renewed():
            raise RestartError("the file of gateways has changed")
        planned = self._checkpoint.planned(batch)
        planned = replace(planned, starts=offsets.complete_starts(planned.starts, planned.ends))
        count = sum(end - planned.starts[partition] for partition, end in planned.ends.items())
        logger.info("batch=%d stage=planned offsets=%d", batch, count)
        check_clock(planned)
        self._log.check_settings()  # at the job's start the topic may have been empty
        overlap = offsets.compare(planned.starts, planned.ends, self._last)
        # Before anything is read: the records are then from these leaders' log, or the check before the receipts finds
        # other leaders.
        self._check_leaders(self._log.check(self._last, planned.ends))
        if overlap is Overlap.COMPLETE:
            self._last = self._skip(survivors, planned)
            logger.info("batch=%d stage=skipped", batch)
        else:
            self._last = self._write(survivors, planned, overlap)
            if not self._effects(self._last):
                raise EndingError(f"batch {batch}: the job is ending, and its next start makes the batch's effects")
        if self._receipts.commit(self._last):
            self._observer.receipted(batch)

    def _skip(self, survivors: DataFrame, planned: PlannedBatch) -> Commit:
        """Bring a batch that the table has into the state, and commit a later birth where its append times show one.

        No commit is needed where the table's last one is of this batch or a later one.
        """
        last = self._last.born_after(consume(survivors, self._horizon(planned, self._last, Overlap.COMPLETE)))
        commit = replace(last, batch=planned.batch)
        if last.birth == self._last.birth or commit.version <= last.version:
            return last
        self._sink.claim(commit)
        return commit

    def _check_leaders(self, epochs: Offsets) -> None:
        """Raise RestartError where the query's consumers may hold records that the log no longer has.

        Executors keep records that they fetched beyond a batch, and Spark does not check them again (decision 54).
        """
        changed = {p: epoch for p, epoch in epochs.items() if self._leader_epochs.get(p, epoch) != epoch}
        if changed:
            raise RestartError(f"leaders elected since the query began to read, epochs by partition: {changed}")
        self._leader_epochs = {**self._leader_epochs, **epochs}

    def _write(self, survivors: DataFrame, planned: PlannedBatch, overlap: Overlap) -> Commit:
        commit = next_commit(self._last, planned, self._window_seconds, self._leader_epochs)
        if commit.birth != self._last.birth:  # an earlier state has seen only records appended before now
            commit = commit.born_after(self._log.latest_append())
        written = self._sink.write(survivors, commit, self._horizon(planned, commit, overlap))
        logger.info("batch=%d stage=committed rows=%d", commit.batch, written.rows)
        if written.ahead is not None:
            logger.warning(
                "batch=%d clock=behind seconds=%.1f hint='correct the clock of the driver, or those of the brokers'",
                *(commit.batch, (written.ahead - planned.time_ms) / 1000),
            )
        self._observer.written(commit.batch, written)
        return commit.born_after(written.ahead)

    def _horizon(self, planned: PlannedBatch, commit: Commit, overlap: Overlap) -> Horizon:
        birth = commit.birth or planned.time_ms
        return Horizon(planned.time_ms, birth, self._window_seconds, overlap is Overlap.PARTIAL)


def check_clock(planned: PlannedBatch) -> None:
    """Raise StopError for a batch whose time is not above the watermark, since Spark drops all of its records."""
    if planned.time_ms <= planned.watermark_ms:
        raise StopError(
            f"batch {planned.batch}: its time {planned.time_ms} is not above the watermark {planned.watermark_ms} ms. "
            "The driver's clock has gone back, and Spark has dropped events. Nothing of this batch is in the table or "
            "receipted. Correct the clock, and start again"
        )


def next_commit(last: Commit, planned: PlannedBatch, window_seconds: int, epochs: Offsets) -> Commit:
    """Return the commit of a batch, which contains the offsets that the table has read after it."""
    is_born_anew = last.birth is None or last.window_seconds is None or window_seconds > last.window_seconds
    return replace(
        last,
        batch=planned.batch,
        starts=planned.starts,
        # Where a batch overlaps, the table may have read further in some partitions.
        ends={**planned.ends, **{p: max(end, planned.ends[p]) for p, end in last.ends.items()}},
        first={**planned.starts, **last.first},  # of a new partition, the batch's start
        birth=planned.time_ms if is_born_anew else last.birth,
        window_seconds=window_seconds,
        epochs=epochs,
    )


def consume(survivors: DataFrame, horizon: Horizon) -> int | None:
    """Evaluate the batch only for its effect on the state, and return the value for `Written.ahead`."""
    ahead: int | None = survivors.agg(latest_ahead(horizon)).collect()[0][0]
    return ahead
