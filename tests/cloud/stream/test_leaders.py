"""The job and leaders that are elected while it runs, on a real broker, in the session that all tests share."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cloud.runtime.shutdown import StopRequest
from cloud.stream.progress import Observer
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.cut_log import cut_log
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

TRIGGER_OFFSETS = 10


@pytest.mark.guarantee(5)
@pytest.mark.heavy
def test_what_was_fetched_before_the_log_was_cut_is_never_written(
    spark: SparkSession, broker: Broker, cloud: CloudSide
) -> None:
    gateway, stop = Gateway(), StopRequest()
    for start in (0, 10, 20):  # the first batch takes ten, and its consumer fetches them all
        cloud.send(gateway.records(readings(10, start=start)), 0)

    class Cutter(Observer):
        def receipted(self, batch: int) -> None:
            if batch == 0:
                cut_log(broker, cloud.topic, 0, TRIGGER_OFFSETS)
                cloud.send(Gateway("gw-2", "00000000000000b2").records(readings(20, start=100)), 0)
            if batch == 2:
                stop.set()

    cloud.run_here(spark, Cutter(), stop, "--max-offsets-per-trigger", str(TRIGGER_OFFSETS))
    assert cloud.ids() == [str(number) for number in (*range(10), *range(100, 120))]
