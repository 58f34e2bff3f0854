"""The job's metrics for Prometheus; docs/cloud.md explains each."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from pyspark.sql.streaming.listener import StreamingQueryProgress

from cloud.stream.progress import dropped_by_watermark, duplicates, lag
from cloud.stream.records import OBSERVATION
from cloud.table.sink import Written

PREFIX = "oncegate_cloud"
_SECONDS = (0.25, 0.5, 1, 2, 3, 4, 6, 10, 20, 60, 300, 3600)
_STATE_DISK_BYTES = "rocksdbSstFileSize"


class Metrics:
    """An `Observer` that serves its counts over HTTP."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._receipted: dict[int, float] = {}
        """When a batch was receipted, in seconds since 1970 UTC, for batches that Spark has not reported yet."""
        self.input = self._counter("records_total", "Records read from the topic")
        self.rows = self._counter("rows_total", "Events that are new in the table")
        self.duplicates = self._counter("duplicates_total", "Duplicates dropped, by where the earlier one was", "by")
        self.late = self._counter("late_total", "Events that may be older than the dedup's state")
        self.late_share = self._gauge("late_share", "Share of late events in the latest batch's survivors")
        self.quarantined = self._counter("quarantined_total", "Records that went to quarantine")
        self.rejected = self._counter("rejected_total", "Events that the transform has rejected")
        self.unknown = self._counter("unknown_total", "Records with words or headers that this release does not know")
        self.dropped = self._counter("dropped_by_watermark_total", "Rows that Spark dropped by their time: an error")
        self.input_rate = self._gauge("input_records_per_second", "Rate of arrival in the latest batch")
        self.processed_rate = self._gauge("processed_records_per_second", "Rate of processing in the latest batch")
        self.state_rows = self._gauge("state_rows", "Keys in the dedup's state, as RocksDB estimates them")
        self.state_disk = self._gauge("state_disk_bytes", "RocksDB's files on disk, at the latest snapshot")
        self.lag = self._gauge("lag_records", "Unread records of the partition with the most of them")
        self.batch_seconds = self._histogram("batch_seconds", "Duration of a batch")
        self.receipt_age = self._histogram("receipt_age_seconds", "Time from a batch's oldest append to its receipt")
        self.effects_seconds = self._histogram("effects_seconds", "Time until a batch's effects succeed")
        self.effects_failures = self._counter("effects_failures_total", "Calls of the effects that have failed")
        self.receipt_time = self._gauge("receipt_timestamp_seconds", "Time of the latest receipts")
        self.report_time = self._gauge(
            "report_timestamp_seconds", "Time of the stream's latest report, or of the start"
        )
        self.report_time.set_to_current_time()

    def serve(self, host: str, port: int) -> None:
        """Serve the metrics on http://host:port/metrics until the process ends."""
        start_http_server(port, host, self.registry)

    def written(self, batch: int, written: Written) -> None:  # the methods of an Observer
        self.rows.inc(written.rows)
        self.duplicates.labels("table").inc(written.found)
        self.late.inc(written.late)
        self.late_share.set(written.late / max(1, written.rows + written.found))
        self.quarantined.inc(written.bad)
        self.rejected.inc(written.rejected)

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
        self.state_disk.set(sum(state.customMetrics.get(_STATE_DISK_BYTES, 0) for state in progress.stateOperators))
        observed = progress.observedMetrics.get(OBSERVATION)
        if observed is None:
            return
        self.input.inc(observed["records"])
        self.unknown.inc(observed["unknown"])
        if receipted is not None and observed["oldest"] is not None:
            self.receipt_age.observe(max(0.0, receipted - observed["oldest"] / 1000))

    def effects_failed(self) -> None:
        self.effects_failures.inc()

    def effects_done(self, seconds: float) -> None:
        self.effects_seconds.observe(seconds)

    def idle(self) -> None:
        self.report_time.set_to_current_time()

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", help_, labels, registry=self.registry)

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", help_, registry=self.registry)

    def _histogram(self, name: str, help_: str) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", help_, registry=self.registry, buckets=_SECONDS)
