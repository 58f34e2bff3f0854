"""The job's metrics for Prometheus; docs/cloud.md explains each."""

import time

from pyspark.sql.streaming.listener import StreamingQueryProgress

from cloud.stream.progress import Observer, dropped_by_watermark, duplicates, lag
from cloud.stream.records import OBSERVATION
from cloud.table.metrics import BatchMetrics
from cloud.table.sink import Written


class JobMetrics(BatchMetrics, Observer):
    """Counts what it observes."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        super().__init__(address)
        self._receipted: dict[int, float] = {}
        """When a batch was receipted, in seconds since 1970 UTC, for batches that Spark has not reported yet."""
        self.late = self._counter("late_total", "Events that may be older than the dedup's state")
        self.late_share = self._gauge("late_share", "Share of late events in the latest batch's survivors")
        self.dropped = self._counter("dropped_by_watermark_total", "Rows that Spark dropped by their time: an error")
        self.input_rate = self._gauge("input_records_per_second", "Rate of arrival in the latest batch")
        self.processed_rate = self._gauge("processed_records_per_second", "Rate of processing in the latest batch")
        self.state_rows = self._gauge("state_rows", "Keys in the dedup's state, as RocksDB estimates them")
        self.state_disk = self._gauge("state_disk_bytes", "RocksDB's files on disk, at the latest snapshot")

    def written(self, batch: int, written: Written) -> None:
        self.count(written)
        self.late.inc(written.late)
        self.late_share.set(written.late / max(1, written.rows + written.found))

    def receipted(self, batch: int) -> None:
        self._receipted[batch] = time.time()
        self.receipt_time.set(self._receipted[batch])

    def progressed(self, progress: StreamingQueryProgress) -> None:
        self.report_time.set_to_current_time()
        receipted = self._receipted.pop(progress.batchId, None)
        self.lag.set(lag(progress))
        if not progress.numInputRows:
            return
        self.input_rate.set(progress.inputRowsPerSecond)
        self.processed_rate.set(progress.processedRowsPerSecond)
        self.batch_seconds.observe(progress.batchDuration / 1000)
        self.duplicates.labels("state").inc(duplicates(progress))
        self.dropped.inc(dropped_by_watermark(progress))
        self.state_rows.set(sum(state.numRowsTotal for state in progress.stateOperators))
        self.state_disk.set(sum(state.customMetrics.get("rocksdbSstFileSize", 0) for state in progress.stateOperators))
        observed = progress.observedMetrics.get(OBSERVATION)
        if observed is None:
            return
        self.input.inc(observed["records"])
        self.unknown.inc(observed["unknown"])
        if receipted is not None and observed["oldest"] is not None:
            self.receipt_age.observe(max(0.0, receipted - observed["oldest"] / 1000))

    def idle(self) -> None:
        self.report_time.set_to_current_time()
