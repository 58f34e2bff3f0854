"""A service without topic ids is refused by the job; the oldest supported version of Kafka has all that it needs."""

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.settings import KafkaSettings
from cloud.stream.kafka_admin import KafkaAdmin
from simulators.services import ports
from simulators.services.install import jars
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.kafka.test_services import WITHOUT_TOPIC_IDS, VersionLink
from tests.cloud.gateway import Gateway, readings
from tests.cloud.running import PARTITIONS, CloudSide

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.heavy
def test_a_service_without_topic_ids_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    port, link = ports.free(2)
    topic = f"events.{uuid4().hex}"
    with Broker(tmp_path / "broker", Listener("PLAINTEXT", port, link)) as broker:
        broker.create_topics(topic, partitions=1)
        settings = KafkaSettings(f"127.0.0.1:{link}", topic, "group", 1000, {})
        with VersionLink(link, port, {}):
            assert len(KafkaAdmin(spark, settings).topic_id()) == 22
        with VersionLink(link, port, WITHOUT_TOPIC_IDS), pytest.raises(StopError, match="has no topic ids"):
            KafkaAdmin(spark, settings).topic_id()


@pytest.mark.heavy
def test_the_job_writes_and_receipts_on_the_oldest_supported_version_though_it_is_killed(tmp_path: Path) -> None:
    topic, gateway = f"events.{uuid4().hex}", Gateway()
    with Broker(tmp_path / "broker", jar_set=jars.BROKER_3_9) as broker:
        broker.create_topics(topic, partitions=PARTITIONS)
        side = CloudSide(broker.bootstrap_servers, topic, tmp_path)
        try:
            records = gateway.records(readings(20))
            side.send([*records, *records[:10]])
            side.start()
            side.wait_for_receipts(30)
            side.kill()
            side.send(gateway.records(readings(10, start=20)))
            side.start()
            side.wait_for_receipts(40)
            assert side.stop() == 0
            assert side.ids() == [str(number) for number in range(30)]
            assert {table for table, _ in side.named()} == {side.table_id}
        finally:
            side.close()
