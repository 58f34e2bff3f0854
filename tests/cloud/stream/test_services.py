"""A service without topic ids is refused by the job."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cloud.errors import StopError
from cloud.settings import KafkaSettings
from cloud.stream.kafka_admin import KafkaAdmin
from simulators.services import ports
from simulators.services.kafka.broker import Broker
from simulators.services.kafka.settings import Listener
from tests.agent.forward.version_link import WITHOUT_TOPIC_IDS, VersionLink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


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
