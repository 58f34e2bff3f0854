"""Reports on the job's batches, to an observer; Spark's own also to the log."""

import logging

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from cloud.runtime.repeated import Counts
from cloud.stream.records import OBSERVATION
from cloud.table.sink import Written
from contract.fields import VERSION

logger = logging.getLogger(__name__)


class Observer(Counts):
    """Receives notice of each batch, and ignores it; a subclass must neither fail nor block."""

    def written(self, batch: int, written: Written) -> None:
        """Receive the outcome of a batch after its commit."""

    def receipted(self, batch: int) -> None:
        """Receive notice that the batch's receipts have just been committed."""

    def progressed(self, progress: StreamingQueryProgress) -> None:
        """Receive Spark's report after the batch."""

    def idle(self) -> None:
        """Receive Spark's regular report that there is nothing to read."""


class ProgressLines(StreamingQueryListener):
    """Logs Spark's report after each batch, and passes it to the observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._newest = VERSION
        """The newest contract of a gateway that has been reported."""
        self._retentions: set[str] = set()
        """Those of gateways that have been reported as other ones than the job's, in seconds."""
        self._has_unknown = False

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  # Spark's name
        logger.info("query=%s stage=started", event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  # Spark's name
        progress = event.progress
        self._observer.progressed(progress)
        if progress.numInputRows:
            _log(progress)
            self._report_news(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  # Spark's name
        self._observer.idle()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  # Spark's name
        logger.info("query=%s stage=ended", event.id)

    def _report_news(self, progress: StreamingQueryProgress) -> None:
        """Report each newer contract, each other retention, and the first content that this release ignores."""
        found = progress.observedMetrics.get(OBSERVATION)
        if found is None:
            return
        contract, _, gateway = (found["newer"] or "").partition(" ")
        if contract and int(contract) > self._newest:
            self._newest = int(contract)
            logger.warning(
                "gateway=%r contract=%s known=%d effect='what it adds to the value outside ext is not in the table' "
                "hint='install the release of the cloud that belongs to the gateways'",
                *(gateway, contract, VERSION),
            )
        retention, _, gateway = (found["retention"] or "").partition(" ")
        if retention and retention not in self._retentions:
            self._retentions.add(retention)
            logger.warning(
                "gateway=%r retention_seconds=%s effect='an id that is used again may count as a duplicate' "
                "hint='give --retention here the value of identity.retention on the gateways'",
                *(gateway, retention),
            )
        if found["unknown"] and not self._has_unknown:
            self._has_unknown = True
            logger.warning(
                "batch=%d unknown=%d effect='words or headers that this release ignores'",
                progress.batchId,
                found["unknown"],
            )


def duplicates(progress: StreamingQueryProgress) -> int:
    """Return the number of records that the state has dropped as duplicates."""
    return sum(int(state.customMetrics.get("numDroppedDuplicateRows", 0)) for state in progress.stateOperators)


def dropped_by_watermark(progress: StreamingQueryProgress) -> int:
    """Return the number of rows that Spark has dropped because of the watermark; it must be 0."""
    return sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)


def lag(progress: StreamingQueryProgress) -> int:
    """Return the largest number of unread records in a partition."""
    behind = [int(source.metrics.get("maxOffsetsBehindLatest", "0")) for source in progress.sources if source.metrics]
    return max(behind, default=0)


def _log(progress: StreamingQueryProgress) -> None:
    """Log one batch; rows are counted once per evaluation of the batch."""
    logger.info(
        "batch=%d stage=done rows_in=%d duplicates=%d dropped_by_watermark=%d seconds=%.1f rows_per_second=%.0f lag=%d",
        progress.batchId,
        progress.numInputRows,
        duplicates(progress),
        dropped_by_watermark(progress),
        progress.batchDuration / 1000,
        progress.processedRowsPerSecond,
        lag(progress),
    )
