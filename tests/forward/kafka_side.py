"""The topic and the processing group as the other side sees and makes them."""

from __future__ import annotations

import time
from typing import cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ lacks some of them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from agent.forward.topic import topic_id
from agent.settings import KafkaSettings
from contract import topics
from tests.support.waiting import wait_until

GROUP = "oncegate-cloud"
PARTITIONS = 4
ANSWER_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 120.0


class KafkaSide:
    """A topic on a real broker."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": "2"})

    def settings(self, delivery: str = "at-least-once", **properties: str) -> KafkaSettings:
        """Give the agent's settings for this topic; `_` stands for the dots of a property."""
        dotted = {name.replace("_", "."): value for name, value in properties.items()}
        return KafkaSettings(self.bootstrap_servers, self.topic, delivery, dotted)

    def create_topic(self) -> str:
        """Create the topic and give its id once all of its partitions answer."""
        new = NewTopic(self.topic, PARTITIONS, 1, config=topics.settings(replicas=1))
        self._admin.create_topics([new])[self.topic].result(ANSWER_SECONDS_MAX)
        wait_until(self._answers, "the topic's partitions answer")
        return str(self.topic_id())

    def configure_topic(self, name: str, value: str) -> None:
        """Set one of the topic's properties."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS_MAX)

    def delete_topic(self) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(ANSWER_SECONDS_MAX)
        wait_until(lambda: self.topic_id() is None, "the topic is gone")

    def topic_id(self) -> str | None:
        try:
            described = self._admin.describe_topics(TopicCollection([self.topic]))[self.topic]
            return topic_id(described.result(ANSWER_SECONDS_MAX))
        except KafkaException:
            return None

    def commit(self, offset: int | None, metadata: str, group: str = GROUP) -> None:
        """Commit an offset (None: each partition's end) for all partitions, as the cloud job does."""
        ends = self.ends()
        offsets = [
            TopicPartition(self.topic, number, ends[number] if offset is None else offset, metadata)
            for number in range(PARTITIONS)
        ]
        request = ConsumerGroupTopicPartitions(group, offsets)
        answer = self._admin.alter_consumer_group_offsets([request])[group].result(ANSWER_SECONDS_MAX)
        assert all(partition.error is None for partition in answer.topic_partitions)

    def ends(self) -> dict[int, int]:
        """Give each partition's next offset."""
        with self._consumer() as consumer:
            return {
                number: consumer.get_watermark_offsets(TopicPartition(self.topic, number), ANSWER_SECONDS_MAX)[1]
                for number in range(PARTITIONS)
            }

    def records(self) -> list[Message]:
        """Give all records that are committed, each partition's in its order."""
        records: list[Message] = []
        unread = set(range(PARTITIONS))
        deadline = time.monotonic() + READ_SECONDS_MAX
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(self.topic, number, 0) for number in sorted(unread)])
            while unread:
                assert time.monotonic() < deadline, f"partitions {unread} are not read to their ends"
                for message in consumer.consume(10_000, 0.5):
                    error = message.error()
                    if error is None:
                        records.append(message)
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        unread.discard(cast("int", message.partition()))
        return records

    def _answers(self) -> bool:
        try:
            return self.topic_id() is not None and len(self.ends()) == PARTITIONS
        except KafkaException:
            return False

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "tests",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
                "enable.partition.eof": "true",
            }
        )


def headers(record: Message) -> dict[str, bytes]:
    """Give the headers of a record in their order."""
    given = cast("list[tuple[str, bytes]]", record.headers())
    return dict(given)


def header(record: Message, name: str) -> bytes:
    """Give one header of a record."""
    return headers(record)[name]


def sequence(record: Message) -> int:
    """Give the sequence, which the twin of the outbox makes equal to the position."""
    return int(header(record, "ce_sequence"))
