"""What is told of the job's batches."""

from __future__ import annotations

from pyspark.sql.streaming.listener import StreamingQueryProgress

from cloud.table.sink import Written


class Observer:
    """Receives notice of each batch, and ignores it; a subclass must neither fail nor block."""

    def written(self, batch: int, written: Written) -> None:
        """Receive the outcome of a batch after its commit."""

    def receipted(self, batch: int) -> None:
        """Receive notice that the batch's receipts have just been committed."""

    def progressed(self, progress: StreamingQueryProgress) -> None:
        """Receive Spark's report after the batch."""

    def idle(self) -> None:
        """Receive Spark's regular report that there is nothing to read."""

    def effects_failed(self) -> None:
        """Receive notice that the user's effects have failed, and are made again."""

    def effects_done(self, seconds: float) -> None:
        """Receive the time that a batch's effects have taken, with their repetitions."""
