"""Kafka's own AdminClient, the one that the connector brings along, for what a consumer can not ask or say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from cloud import jvm
from cloud.commits import Offsets
from cloud.errors import ReceiptError, StopError
from cloud.settings import KafkaSettings

ANSWER_SECONDS_MAX = 30


class KafkaAdmin:
    """One AdminClient, closed with the job's process."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings) -> None:
        self._jvm = jvm.classes(spark)
        self._topic = kafka.topic
        properties = self._jvm.java.util.Properties()
        limit = str(ANSWER_SECONDS_MAX * 1000)
        settings = {"default.api.timeout.ms": limit, "request.timeout.ms": limit, **kafka.properties}
        for name, value in {**settings, "bootstrap.servers": kafka.bootstrap_servers}.items():
            properties.put(name, value)
        self._client = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)

    def topic_id(self) -> str:
        """Give the topic's id, another one after it was deleted and made anew."""
        return str(self._describe().topicId().toString())

    def log(self) -> dict[int, tuple[int, int]]:
        """Give the earliest and the latest offset of each partition."""
        partitions = [info.partition() for info in self._describe().partitions()]
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        earliest = self._list(partitions, spec.earliest())
        latest = self._list(partitions, spec.latest())
        return {partition: (earliest[partition], latest[partition]) for partition in partitions}

    def commit(self, group: str, offsets: Offsets, metadata: Mapping[int, str]) -> None:
        """Commit a group's offsets with what is to stand beside them."""
        wanted = self._jvm.java.util.HashMap()
        for partition, offset in offsets.items():
            beside = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset, metadata[partition])
            wanted.put(self._partition(partition), beside)
        try:
            self._wait(self._client.alterConsumerGroupOffsets(group, wanted).all())
        except Py4JJavaError as error:
            raise ReceiptError(f"group {group}: cannot commit offsets: {error.java_exception}") from error

    def _describe(self) -> Any:
        names = self._jvm.java.util.List.of(self._topic)
        try:
            return self._wait(self._client.describeTopics(names).allTopicNames()).get(self._topic)
        except Py4JJavaError as error:
            raise StopError(f"topic {self._topic}: cannot be described: {error.java_exception}") from error

    def _list(self, partitions: list[int], spec: Any) -> Offsets:
        wanted = self._jvm.java.util.HashMap()
        for partition in partitions:
            wanted.put(self._partition(partition), spec)
        answers = self._wait(self._client.listOffsets(wanted).all())
        return {partition: int(answers.get(self._partition(partition)).offset()) for partition in partitions}

    def _partition(self, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(self._topic, partition)

    def _wait(self, future: Any) -> Any:
        return future.get(ANSWER_SECONDS_MAX, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
