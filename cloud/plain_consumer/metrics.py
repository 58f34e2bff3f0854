"""The consumer's metrics for Prometheus: some of the job's, which docs/cloud.md explains."""

import time
from collections.abc import Sequence

from cloud.plain_consumer.records import Judged
from cloud.table.layout import STAGED
from cloud.table.metrics import BatchMetrics
from cloud.table.sink import Written

_APPENDED = list(STAGED).index("appended")


class ConsumerMetrics(BatchMetrics):
    """Counts."""

    def __init__(self, address: tuple[str, int] | None) -> None:
        super().__init__(address)
        self._oldest: float | None = None
        """When the oldest record without a receipt was appended, in seconds since 1970 UTC."""

    def wrote(self, written: Written, judged: Sequence[Judged], seconds: float) -> None:
        self.input.inc(len(judged))
        self.count(written)
        self.unknown.inc(sum(one.is_newer for one in judged))
        self.batch_seconds.observe(seconds)
        times = [one.row[_APPENDED].timestamp() for one in judged if one.row[_APPENDED] is not None]  # type: ignore[attr-defined]
        self._oldest = min(times, default=self._oldest)

    def receipted(self) -> None:
        """Note that all counted records are receipted."""
        self.receipt_time.set_to_current_time()
        if self._oldest is not None:
            self.receipt_age.observe(max(0.0, time.time() - self._oldest))
        self._oldest = None

    def turned(self, lag: int) -> None:
        """Note a turn of the loop, and the largest number of unread records in a partition."""
        self.lag.set(lag)
        self.report_time.set_to_current_time()
