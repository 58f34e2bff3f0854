"""A broker starts, keeps acknowledged records across SIGKILL, and leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from contract import topics
from simulators.services import session
from simulators.services.kafka.broker import Broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SECONDS_MAX = 60.0
PARENT = """
import sys
from pathlib import Path
from simulators.services.kafka.broker import Broker
broker = Broker(Path(sys.argv[1]))
broker.start()
print(broker.process.pid, flush=True)
sys.stdin.read()
"""


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


def test_topics_that_exist_are_left_as_they_are(broker: Broker) -> None:
    broker.create_topics("kept", partitions=2)
    before = described(broker, "kept")
    broker.create_topics("kept", topics.EVENTS, partitions=5)
    assert described(broker, "kept") == before
    assert before[1] == 2


def described(broker: Broker, topic: str) -> tuple[str, int]:
    """Return the topic's id and its number of partitions, once the broker has the created topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wait_until(lambda: topic in admin.list_topics(timeout=SECONDS_MAX).topics, "the broker has the topic")
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=SECONDS_MAX)
    return str(found.topic_id), len(found.partitions)


@pytest.mark.heavy
def test_an_acknowledged_record_survives_kill_and_restart(broker: Broker) -> None:
    address = broker.bootstrap_servers
    produce(broker, b"kept")

    broker.kill()
    assert not broker.process.alive
    broker.start()

    assert broker.bootstrap_servers == address
    assert b"kept" in consume(broker)


@pytest.mark.heavy
def test_two_brokers_do_not_meet(broker: Broker, tmp_path: Path) -> None:
    with Broker(tmp_path) as other:
        other.create_topics("other")

        assert other.bootstrap_servers != broker.bootstrap_servers
        assert "other" not in topic_names(broker)


@pytest.mark.heavy
def test_no_broker_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        assert session.members(pid) == [pid]

        parent.kill()

    wait_until(lambda: not session.members(pid), "the broker has ended")


def produce(broker: Broker, value: bytes) -> None:
    delivered: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce(topics.EVENTS, value, on_delivery=lambda error, _message: delivered.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    assert delivered == [None]


def consume(broker: Broker) -> list[bytes]:
    """Return all values up to the current ends of the partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values: list[bytes] = []
    ended: set[int] = set()
    try:
        consumer.subscribe([topics.EVENTS])
        while len(ended) < topics.PARTITIONS:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "no record and no end of a partition"
            _note(message, values, ended)
    finally:
        consumer.close()
    return values


def topic_names(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=SECONDS_MAX).topics)


def _note(message: Message, values: list[bytes], ended: set[int]) -> None:
    error = message.error()
    value, partition = message.value(), message.partition()
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF, error
        assert partition is not None
        ended.add(partition)
    elif value is not None:
        values.append(value)
