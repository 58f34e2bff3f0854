"""The topic and the processing group, for tests: created, written, read and committed."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import cast
from uuid import uuid4

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
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    ResourceType,
)

from agent.config.settings import KafkaSettings
from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import LeaderEpochs, TopicWatch, leader_epochs, topic_id
from contract import topics
from contract.receipt import Receipt
from contract.record import STATEMENT, read_stated_label
from tests.support.waiting import wait_until

GROUP = "oncegate-cloud"
PARTITIONS = 4
UNKNOWN_EPOCH = -1
"""The client's value where no leader epoch is set."""
ANSWER_SECONDS_MAX = 60.0
QUESTION_SECONDS_MAX = 10.0
"""Of a question that is asked again."""
READ_SECONDS_MAX = 120.0


class KafkaTopic:
    def __init__(self, bootstrap_servers: str, topic: str, replicas: int = 1) -> None:
        self._replicas = replicas
        self.partitions = PARTITIONS
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": "2"})

    def settings(self, delivery: str = "at-least-once", **properties: str) -> KafkaSettings:
        """Return the agent's settings for this topic; `_` replaces the dots of a property."""
        dotted = {name.replace("_", "."): value for name, value in properties.items()}
        return KafkaSettings(self.bootstrap_servers, self.topic, delivery, dotted)

    def create_topic(self) -> str:
        """Create the topic and return its id once all of its partitions answer."""
        new = NewTopic(self.topic, self.partitions, self._replicas, config=topics.settings(replicas=self._replicas))
        # A broker that was paused is not a controller at first, and librdkafka does not retry in time.
        wait_until(self._has_controller, "a controller is there")
        self._admin.create_topics([new])[self.topic].result(ANSWER_SECONDS_MAX)
        wait_until(self._answers, "the topic's partitions answer")
        return str(self.topic_id())

    def _has_controller(self) -> bool:
        try:
            return self._admin.list_topics(timeout=ANSWER_SECONDS_MAX).controller_id >= 0
        except KafkaException:
            return False

    def configure_topic(self, name: str, value: str) -> None:
        self._configure(ResourceType.TOPIC, self.topic, name, value)

    def configure_broker(self, name: str, value: str) -> None:
        """Set one of the properties of the first broker."""
        self._configure(ResourceType.BROKER, "1", name, value)

    def _configure(self, kind: ResourceType, of: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, of, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS_MAX)

    def delete_topic(self) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(ANSWER_SECONDS_MAX)
        wait_until(lambda: self.topic_id() is None, "the topic is gone")

    def add_partitions(self, count: int) -> None:
        """Set the number of partitions, and wait until all of them answer."""
        self._admin.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(ANSWER_SECONDS_MAX)
        self.partitions = count
        wait_until(self._answers, "the topic's new partitions answer")

    def topic_id(self) -> str | None:
        try:
            described = self._admin.describe_topics(TopicCollection([self.topic]))[self.topic]
            return topic_id(described.result(ANSWER_SECONDS_MAX))
        except KafkaException:
            return None

    def commit(
        self, offset: int | None, metadata: str, group: str = GROUP, leader_epochs: LeaderEpochs | None = None
    ) -> None:
        """Commit an offset (None: each partition's end) for all partitions, as the cloud job does.

        By default with the leader epochs of now, as the job; without those that `leader_epochs` leaves out.
        """
        ends, epochs = self.ends(), self.leader_epochs() if leader_epochs is None else leader_epochs
        offsets = [
            TopicPartition(
                *(self.topic, number, ends[number] if offset is None else offset, metadata),
                epochs.get(number, UNKNOWN_EPOCH),
            )
            for number in range(self.partitions)
        ]
        request = ConsumerGroupTopicPartitions(group, offsets)
        wait_until(lambda: self._takes(request), "the group takes the offsets")

    def receipt(self, table: str = "table-1", first: int = 0) -> str:
        """Return the metadata that the cloud job commits with an offset of this topic."""
        return str(Receipt(table, first, str(self.topic_id())))

    def delete_before(self, offsets: Mapping[int, int]) -> None:
        """Delete the records of each partition that are below an offset, as retention does."""
        places = [TopicPartition(self.topic, number, offset) for number, offset in offsets.items()]
        for deleted in self._admin.delete_records(places).values():
            deleted.result(ANSWER_SECONDS_MAX)

    def forget_offsets(self, group: str = GROUP) -> None:
        """Remove a group's offsets, as their expiry does."""
        self._admin.delete_consumer_groups([group])[group].result(ANSWER_SECONDS_MAX)

    def ends(self, isolation: str = "read_committed") -> dict[int, int]:
        """Return each partition's next offset; a restarted broker may not lead them yet."""
        with self._consumer(isolation) as consumer:
            return {number: self._end(consumer, number) for number in range(self.partitions)}

    def _end(self, consumer: Consumer, number: int) -> int:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(self.topic, number), ANSWER_SECONDS_MAX)[1]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise

    def records(self) -> list[Message]:
        """Return all records that are committed, each partition's in its order, once no transaction is open."""
        wait_until(lambda: self.ends() == self.ends(isolation="read_uncommitted"), "no transaction is open")
        records: list[Message] = []
        unread = set(range(self.partitions))
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

    def partition(self, number: int) -> PartitionMetadata:
        """Return the brokers that lead a partition, have a replica of it, and have all of its records."""
        found: list[PartitionMetadata] = []

        def is_answered() -> bool:
            with suppress(KafkaException):  # a broker that was just killed may have been asked
                known = self._admin.list_topics(self.topic, QUESTION_SECONDS_MAX).topics[self.topic]
                found.append(known.partitions[number])
            return bool(found)

        wait_until(is_answered, "a broker knows the partition")
        return found[0]

    def leader_epochs(self) -> LeaderEpochs:
        """Return each partition's leader epoch; a restarted broker may not lead them yet."""
        found: LeaderEpochs = {}

        def is_led() -> bool:
            nonlocal found
            with suppress(SessionError):
                found = leader_epochs(
                    TopicWatch(self._admin, self.topic, LastError()).read_view(threading.Event()).ends
                )
            return len(found) == self.partitions

        wait_until(is_led, "the topic's partitions are led")
        return found

    def _takes(self, request: ConsumerGroupTopicPartitions) -> bool:
        """Whether the group accepted the offsets; a restarted coordinator loads its group first."""
        try:
            answer = self._admin.alter_consumer_group_offsets([request])[request.group_id].result(ANSWER_SECONDS_MAX)
        except KafkaException:
            return False
        return all(partition.error is None for partition in answer.topic_partitions)

    def _answers(self) -> bool:
        try:
            return self.topic_id() is not None and len(self.ends()) == self.partitions
        except KafkaException:
            return False

    def _consumer(self, isolation: str = "read_committed") -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "tests",
                "enable.auto.commit": "false",
                "isolation.level": isolation,
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
            }
        )


class LinkedTopic(KafkaTopic):
    """A new topic whose gateways reach the broker by a link; `link_ends` are the link's port, and the broker's."""

    def __init__(self, bootstrap_servers: str, link_ends: tuple[int, int]) -> None:
        super().__init__(bootstrap_servers, f"linked.{uuid4().hex}")
        self.link_ends = link_ends
        self.create_topic()

    def settings(self, delivery: str = "at-least-once", **properties: str) -> KafkaSettings:
        return replace(super().settings(delivery, **properties), bootstrap_servers=f"127.0.0.1:{self.link_ends[0]}")


def new_topic(bootstrap_servers: str, partitions: int = PARTITIONS, replicas: int = 1) -> KafkaTopic:
    """Create a topic with a name that no other has."""
    made = KafkaTopic(bootstrap_servers, f"events.{uuid4().hex}", replicas)
    made.partitions = partitions
    made.create_topic()
    return made


def header(record: Message, name: str) -> bytes:
    return dict(cast("list[tuple[str, bytes]]", record.headers()))[name]


def label(record: Message) -> tuple[str, int]:
    _, stated = read_stated_label(header(record, STATEMENT))
    return stated.epoch, stated.sequence


def sequence(record: Message) -> int:
    """Return the sequence, which the in-memory outbox makes equal to the position."""
    return label(record)[1]
