"""The job and leaders that are elected while it runs, on a real broker, in the session that all tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cloud import job
from cloud.runtime.shutdown import StopRequest
from cloud.settings import JobSettings, parse
from cloud.stream.checkpoint import Checkpoint
from cloud.stream.observer import NullObserver
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log
from tests.cloud.gateway import Gateway, readings, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TRIGGER_OFFSETS = 10


class Side:
    """A topic of one partition, a Delta table, and a job that runs in the test's own process."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self.spark, self.broker = spark, broker
        self.topic = f"leaders.{uuid4().hex}"
        broker.create_topics(self.topic, partitions=1)
        arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--topic", self.topic, "--group", self.topic)
        folders = ("--table", str(folder / "events"), "--checkpoint", str(folder / "checkpoint"))
        rules = ("--trigger", "1s", "--max-offsets-per-trigger", str(TRIGGER_OFFSETS))
        self.settings: JobSettings = job.qualify(spark, parse([*arguments, *folders, *rules]))

    def send(self, gateway: Gateway, count: int, start: int) -> None:
        send(self.broker.bootstrap_servers, self.topic, gateway.records(readings(count, start=start)), 0)

    def run(self, observer: AfterBatches) -> None:
        checkpoint = Checkpoint(self.spark, self.settings.checkpoint, self.topic)
        job.run_on_checkpoint(self.spark, self.settings, checkpoint, observer, observer.stop)

    def ids(self) -> list[int]:
        return sorted(int(row["id"]) for row in self.rows())

    def rows(self) -> list[Any]:
        return self.spark.read.format("delta").load(self.settings.tables.table).collect()


class AfterBatches(NullObserver):
    """An `Observer` that does something once after the first receipt, and ends the job with its last batch."""

    def __init__(self, last_batch: int) -> None:
        self.stop = StopRequest()
        self.last_batch = last_batch

    def after_first(self) -> None:
        """Run between two batches."""

    def receipted(self, batch: int) -> None:
        if batch == 0:
            self.after_first()
        if batch == self.last_batch:
            self.stop.stop()


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_was_fetched_before_the_log_was_cut_is_never_written(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    side, gateway = Side(spark, broker, tmp_path), Gateway()
    for start in (0, 10, 20):  # the first batch takes ten, and its consumer fetches them all
        side.send(gateway, 10, start)

    class Cutter(AfterBatches):
        def after_first(self) -> None:
            cut_log(broker, side.topic, 0, TRIGGER_OFFSETS)
            side.send(Gateway("gw-2", "00000000000000b2"), 20, 100)

    side.run(Cutter(last_batch=2))
    assert side.ids() == [*range(10), *range(100, 120)]
