"""Starts of the job after records of its planned batch, or parts of its last commit, were lost."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cloud.settings import KafkaSettings
from cloud.stream.source import read_topic
from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import DELTA, POSTGRES, CloudSide

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.heavy]


@pytest.mark.guarantee(5)
@pytest.mark.parametrize("cloud", [DELTA, POSTGRES], indirect=True)
def test_a_planned_batch_whose_records_retention_has_deleted_stops_the_job(cloud: CloudSide, broker: Broker) -> None:
    cloud.send(Gateway().records(readings(10)), partition=0)
    cloud.start()
    cloud.wait_for_log("claim=1")
    with cloud.rows_held_back():
        cloud.wait_for_log("batch=0 stage=look-up" if cloud.postgres is None else "batch=0 stage=staged")
        broker.pause()
        cloud.kill()
        broker.resume()
    cloud.delete_records({0: 5})
    assert cloud.wait_for_end(cloud.start()) == 1
    assert "retention has deleted offsets 0 to 4, which batch 0 is to read" in cloud.jobs[-1].log()
    cloud.remove_checkpoint()
    cloud.start("--read-again")
    cloud.wait_for_receipts(5)
    assert cloud.ids() == [str(number) for number in range(5, 10)]


@pytest.mark.guarantee(5)
def test_what_retention_deletes_between_the_plan_of_a_batch_and_its_reading_is_not_passed_over(
    cloud: CloudSide, spark: SparkSession
) -> None:
    cloud.send(Gateway().records(readings(10)), partition=0)
    read: list[int] = []

    def write(batch: DataFrame, _: int) -> None:
        cloud.delete_records({0: 5})
        read.append(batch.count())

    kafka = KafkaSettings(cloud.bootstrap_servers, cloud.topic, cloud.group, 1_000, {})
    stream = read_topic(spark, kafka, "earliest").writeStream.foreachBatch(write)
    query = stream.option("checkpointLocation", cloud.place("checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="may have been lost"):
        query.awaitTermination()
    assert read == []
