"""What is told of each batch to whoever watches the job."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql.streaming.listener import StreamingQueryProgress

from cloud.table.sink import Written


class Observer(Protocol):
    """Be told; never stand in the way."""

    def written(self, batch: int, written: Written) -> None:
        """Take note of a commit."""

    def receipted(self, batch: int) -> None:
        """Take note that the batch's receipts have been given, now."""

    def progressed(self, progress: StreamingQueryProgress) -> None:
        """Take note of Spark's own figures, after the batch."""


class NullObserver:
    """A `Observer` that looks away."""

    def written(self, batch: int, written: Written) -> None:
        pass

    def receipted(self, batch: int) -> None:
        pass

    def progressed(self, progress: StreamingQueryProgress) -> None:
        pass
