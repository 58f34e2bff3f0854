"""The job refuses a topic whose records do not have the broker's time of their append."""

import pytest

from simulators.services.kafka.broker import Broker
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import CloudSide
from tests.cloud.stream.test_topic_log import set_times

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.heavy]


@pytest.mark.guarantee(5)
def test_records_without_the_time_of_their_append_are_not_written(cloud: CloudSide, broker: Broker) -> None:
    set_times(broker, cloud.topic, "CreateTime")
    cloud.start()
    cloud.wait_for_log("claim=1")  # the topic is still empty
    cloud.send(Gateway().records(readings(10)))
    assert cloud.wait_for_end() == 1
    assert "LogAppendTime on the topic" in cloud.jobs[-1].log()
    assert cloud.wait_for_end(cloud.start()) == 1
    assert "claim=2" not in cloud.jobs[-1].log()
    set_times(broker, cloud.topic, "LogAppendTime")
    cloud.send(Gateway("gw-2", "00000000000000b2").records(readings(1, start=10)), partition=0)
    cloud.start()
    cloud.wait_for_receipts(11)
    assert cloud.ids() == [str(number) for number in range(11)]
