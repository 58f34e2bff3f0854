"""Requests to Kafka that Spark's reader does not offer, by the Java clients that its connector includes."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import SparkSession

from cloud.committed import Committed
from cloud.errors import KafkaError, StopError
from cloud.runtime import jvm
from cloud.settings import KafkaSettings
from cloud.stream.topic_log import ANSWER_SECONDS_MAX, NO_ID, LogEnd
from cloud.table.commits import Offsets

LOOK_BACK_OFFSETS = 100
"""How far before the end of a partition a record is looked for; markers of transactions have offsets as well."""


class KafkaAdmin:
    """An AdminClient for one topic, which stays open until the process ends."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings) -> None:
        self._class = partial(jvm.java_class, spark)
        self._topic = kafka.topic
        limit = str(ANSWER_SECONDS_MAX * 1000)
        settings = {"default.api.timeout.ms": limit, "request.timeout.ms": limit, **kafka.properties}
        self._settings = {**settings, "bootstrap.servers": kafka.bootstrap_servers}
        self._client = self._class("org.apache.kafka.clients.admin.AdminClient").create(self._settings)

    def topic_id(self) -> str:
        """Return the topic's id, which is another one after the topic was deleted and recreated.

        Raise StopError where the service has no topic ids.
        """
        found = str(self._describe().topicId().toString())
        if found == NO_ID:
            raise StopError(
                f"topic {self._topic}: this Kafka service has no topic ids (KIP-516), so that a topic that was "
                "deleted and recreated would not be detected, and events would be lost: use a service of docs/kafka.md"
            )
        return found

    def is_compacted(self) -> bool:
        """Whether Kafka compacts the topic; False also without the right to read its settings, DescribeConfigs."""
        kinds = self._class("org.apache.kafka.common.config.ConfigResource$Type")
        what = self._class("org.apache.kafka.common.config.ConfigResource")(kinds.TOPIC, self._topic)
        try:
            asked = self._client.describeConfigs([what]).all()
            found = self._wait(asked, f"topic {self._topic}: its settings cannot be read")
        except KafkaError as error:
            if "AuthorizationException" in str(error):
                return False
            raise
        return "compact" in str(found.get(what).get("cleanup.policy").value())

    def offset_ranges(self) -> dict[int, tuple[int, int]]:
        """Return the earliest and the latest offset of each partition."""
        partitions = self._partitions()
        earliest, latest = self._list(partitions, "earliest"), self._list(partitions, "latest")
        return {partition: (int(earliest[partition].offset()), int(latest[partition].offset())) for partition in latest}

    def ends(self, partitions: Iterable[int]) -> dict[int, LogEnd]:
        found = self._list(partitions, "latest")
        return {partition: LogEnd(int(end.offset()), _epoch(end)) for partition, end in found.items()}

    def latest_append(self) -> int:
        """Return the latest append time of a record that the log still has, in milliseconds since 1970 UTC."""
        return max(int(found.timestamp()) for found in self._list(self._partitions(), "maxTimestamp").values())

    def has_append_times(self) -> bool | None:
        """Whether one of the latest records has the broker's append time; None where no record is found.

        One is enough: partitions without a new record keep the times of before the topic's setting was corrected.
        """
        ranges = {self._partition(p): ends for p, ends in self.offset_ranges().items() if ends[0] < ends[1]}
        if not ranges:
            return None
        with self._consumer() as consumer:
            consumer.assign(list(ranges))
            for where, (earliest, latest) in ranges.items():
                consumer.seek(where, max(earliest, latest - LOOK_BACK_OFFSETS))
            return self._reads_append_times(consumer, {where: latest for where, (_, latest) in ranges.items()})

    def truncations(self, places: Mapping[int, LogEnd]) -> dict[int, str]:
        """Return the cause for each partition whose log was truncated below the offset that was read.

        A consumer that seeks with a leader epoch receives from the leader where in its log the epoch ends (KIP-320).
        """
        if not places:
            return {}
        with self._consumer() as consumer:
            causes = {partition: self._is_truncated(consumer, partition, place) for partition, place in places.items()}
        return {partition: cause for partition, cause in causes.items() if cause is not None}

    def committed(self, group: str, partitions: Iterable[int]) -> dict[int, Committed]:
        asked = self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()
        answers = self._wait(asked, f"group {group}: its offsets")
        found = {partition: answers.get(self._partition(partition)) for partition in partitions}
        return {
            partition: Committed(int(place.offset()), _epoch(place), str(place.metadata()))
            for partition, place in found.items()
            if place is not None
        }

    def commit(
        self, group: str, offsets: Offsets, metadata: Mapping[int, str], leader_epochs: Mapping[int, int]
    ) -> None:
        wanted = {
            self._partition(partition): self._place(LogEnd(offset, leader_epochs.get(partition)), metadata[partition])
            for partition, offset in offsets.items()
        }
        self._wait(self._client.alterConsumerGroupOffsets(group, wanted).all(), f"group {group}: cannot commit offsets")

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        """Open a consumer without a group."""
        bytes_reader = self._class("org.apache.kafka.common.serialization.ByteArrayDeserializer")
        # Without "none" the consumer would silently read from another offset.
        settings = {**self._settings, "auto.offset.reset": "none", "allow.auto.create.topics": "false"}
        consumer = self._class("org.apache.kafka.clients.consumer.KafkaConsumer")(
            settings, bytes_reader(), bytes_reader()
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _reads_append_times(self, consumer: Any, ends: Mapping[Any, int]) -> bool | None:
        """Read up to the ends, or to the first record with the broker's append time."""
        second = self._class("java.time.Duration").ofSeconds(1)
        deadline, found = time.monotonic() + ANSWER_SECONDS_MAX, None
        try:
            while any(consumer.position(where) < end for where, end in ends.items()):
                batch = consumer.poll(second)
                for where in batch.partitions():
                    records = batch.records(where)
                    found = str(records.get(records.size() - 1).timestampType().toString()) == "LogAppendTime"
                    if found:
                        return True
                if time.monotonic() >= deadline:
                    raise KafkaError(
                        f"topic {self._topic}: its latest records were not read within {ANSWER_SECONDS_MAX} s"
                    )
        except Py4JJavaError as error:
            raise KafkaError(f"topic {self._topic}: cannot read its latest records: {error.java_exception}") from error
        return found

    def _is_truncated(self, consumer: Any, partition: int, place: LogEnd) -> str | None:
        where = self._partition(partition)
        consumer.assign([where])
        limit = self._class("java.time.Duration").ofSeconds(ANSWER_SECONDS_MAX)
        try:
            # A consumer without a known leader accepts the offset without a request.
            consumer.endOffsets(consumer.assignment(), limit)
            consumer.seek(where, self._place(place, ""))
            consumer.position(where, limit)
        except Py4JJavaError as error:
            if "LogTruncationException" in (text := str(error.java_exception)):
                return text
            raise KafkaError(f"topic {self._topic}, partition {partition}: {text}") from error
        return None

    def _place(self, place: LogEnd, metadata: str) -> Any:
        optional = self._class("java.util.Optional")
        epoch = optional.empty() if place.leader_epoch is None else optional.of(place.leader_epoch)
        return self._class("org.apache.kafka.clients.consumer.OffsetAndMetadata")(place.offset, epoch, metadata)

    def _describe(self) -> Any:
        asked = self._client.describeTopics([self._topic]).allTopicNames()
        try:
            return self._wait(asked, f"topic {self._topic}: cannot be described").get(self._topic)
        except KafkaError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                raise StopError(f"topic {self._topic}: it does not exist") from error
            raise

    def _partitions(self) -> list[int]:
        return [info.partition() for info in self._describe().partitions()]

    def _list(self, partitions: Iterable[int], which: str) -> dict[int, Any]:
        """Return the offset of each partition that one of Kafka's `OffsetSpec` names."""
        spec = getattr(self._class("org.apache.kafka.clients.admin.OffsetSpec"), which)()
        places = {one: self._partition(one) for one in partitions}
        asked = self._client.listOffsets(dict.fromkeys(places.values(), spec)).all()
        found = self._wait(asked, f"topic {self._topic}: cannot list its offsets")
        return {partition: found.get(place) for partition, place in places.items()}

    def _partition(self, partition: int) -> Any:
        return self._class("org.apache.kafka.common.TopicPartition")(self._topic, partition)

    def _wait(self, future: Any, what: str) -> Any:
        try:
            return future.get(ANSWER_SECONDS_MAX, self._class("java.util.concurrent.TimeUnit").SECONDS)
        except Py4JJavaError as error:
            raise KafkaError(f"{what}: {error.java_exception}") from error


def _epoch(place: Any) -> int | None:
    epoch = place.leaderEpoch()
    return int(epoch.get()) if epoch.isPresent() else None
