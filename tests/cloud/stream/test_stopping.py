"""A stop that is requested while the next batch begins: it neither waits for that batch nor is held up by it."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cloud.errors import EndingError, StopError
from cloud.job import supervise
from cloud.runtime.shutdown import StopRequest
from cloud.stream.batch import BatchWriter
from cloud.stream.progress import Observer
from cloud.stream.receipts import Receipts
from cloud.table.commits import CLAIM_ONLY, Commit

pytestmark = pytest.mark.spark

END_SECONDS_MAX = 60


def writer_of_nothing() -> BatchWriter:
    """Return a writer without any parts: a batch that uses one fails."""
    last = Commit("t", "c", 2, CLAIM_ONLY, "events", "id", {}, {}, {}, None, 3600)
    absent: Any = None
    return BatchWriter(absent, absent, absent, last, 3600, absent, Observer())


class SlowlyBeginningQuery:
    """A real query whose batch reaches the writer once the query is being stopped."""

    def __init__(self, spark: SparkSession, writer: BatchWriter) -> None:
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._writer = writer
        stream = spark.readStream.format("rate").load()
        self._query = stream.writeStream.foreachBatch(self._write).start()
        assert self._begun.wait(END_SECONDS_MAX)

    def _write(self, survivors: DataFrame, batch: int) -> None:
        self._begun.set()
        self._stopping.wait(END_SECONDS_MAX)
        self._writer(survivors, batch)

    @property
    def isActive(self) -> bool:  # noqa: N802  # the name of the query's property
        return self._query.isActive

    def stop(self) -> None:
        self._stopping.set()
        self._query.stop()

    def awaitTermination(self) -> None:  # noqa: N802  # the name of the query's method
        self._query.awaitTermination()


def test_a_batch_that_begins_while_the_job_ends_is_left_to_the_next_start(spark: SparkSession) -> None:
    writer = writer_of_nothing()
    stop = StopRequest()
    stop.set()
    query = cast("StreamingQuery", SlowlyBeginningQuery(spark, writer))
    supervise(lambda: query, writer, cast("Receipts", None), stop)


@pytest.mark.guarantee(5)
def test_no_batch_goes_on_once_the_receipts_cannot_be_repeated(spark: SparkSession) -> None:
    writer = writer_of_nothing()
    query = SlowlyBeginningQuery(spark, writer)

    def refuse() -> None:
        raise StopError("another topic")

    gone: Any = SimpleNamespace(repeat=refuse)
    with pytest.raises(StopError, match="another topic"):
        supervise(lambda: cast("StreamingQuery", query), writer, gone, StopRequest())
    assert not query.isActive
    assert isinstance(writer.error, EndingError)
