"""A broker starts, keeps acknowledged records across SIGKILL, and leaves no process behind."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from contract import topics
from simulators.services.kafka.broker import Broker

pytestmark = pytest.mark.kafka

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        started.create_topics()
        yield started


@pytest.mark.guarantee(4)
def test_the_topic_has_the_settings_of_the_promise(broker: Broker) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topics.EVENTS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    found = admin.describe_configs([resource])[resource].result(timeout=SECONDS_MAX)
    partitions = admin.list_topics(timeout=SECONDS_MAX).topics[topics.EVENTS].partitions

    assert {name: found[name].value for name in topics.settings(1)} == topics.settings(1)
    assert len(partitions) == topics.PARTITIONS
