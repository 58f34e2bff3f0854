"""Metrics for Prometheus, and those that all writers of a table have; docs/cloud.md explains each."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from cloud.errors import StopError
from cloud.runtime.repeated import Counts
from cloud.table.sink import Written

_SECONDS = (0.25, 0.5, 1, 2, 3, 4, 6, 10, 20, 60, 300, 3600)


class Metrics:
    """Metrics whose names begin with a prefix."""

    def __init__(self, prefix: str, address: tuple[str, int] | None) -> None:
        """Serve them on http://host:port/metrics until the process ends, if an address is set.

        Raise StopError where that fails.
        """
        self.registry = CollectorRegistry()
        self._counter = partial(Counter, namespace=prefix, registry=self.registry)
        self._gauge = partial(Gauge, namespace=prefix, registry=self.registry)
        self._histogram = partial(Histogram, namespace=prefix, registry=self.registry, buckets=_SECONDS)
        if address is not None:
            host, port = address
            try:
                start_http_server(port, host, self.registry)
            except OSError as error:
                raise StopError(f"metrics: cannot listen on {host}:{port}: {error}") from error


class BatchMetrics(Metrics, Counts):
    """Counts of batches, rows and receipts."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        super().__init__("oncegate_cloud", address)
        self.input = self._counter("records_total", "Records read from the topic")
        self.rows = self._counter("rows_total", "Events that are new in the table")
        self.duplicates = self._counter("duplicates_total", "Duplicates dropped, by where the earlier one was", ["by"])
        self.quarantined = self._counter("quarantined_total", "Records that went to quarantine")
        self.rejected = self._counter("rejected_total", "Events that the transform has rejected")
        self.lag = self._gauge("lag_records", "Unread records of the partition with the most of them")
        self.effects_seconds = self._histogram("effects_seconds", "Time until a batch's effects succeed")
        self.effects_failures = self._counter("effects_failures_total", "Calls of the effects that have failed")
        self.unknown = self._counter("unknown_total", "Records with words or headers that this release does not know")
        self.batch_seconds = self._histogram("batch_seconds", "Duration of a batch")
        self.receipt_age = self._histogram("receipt_age_seconds", "Time from a batch's oldest append to its receipt")
        self.receipt_time = self._gauge("receipt_timestamp_seconds", "Time of the latest receipts")
        self.report_time = self._gauge(
            "report_timestamp_seconds", "Time of the stream's latest report, or of the start"
        )
        self.report_time.set_to_current_time()

    def count(self, written: Written) -> None:
        """Count the outcome of a batch."""
        self.rows.inc(written.rows)
        self.duplicates.labels("table").inc(written.found)
        self.quarantined.inc(written.bad)
        self.rejected.inc(written.rejected)

    def effects_failed(self) -> None:
        self.effects_failures.inc()

    def effects_done(self, seconds: float) -> None:
        self.effects_seconds.observe(seconds)
