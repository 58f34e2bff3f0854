"""Read back what Kafka holds, record by record, as any consumer would see it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from contract.topics import EVENTS
from simulators.evidence.row import Row

READ_SECONDS_MAX = 120.0
_BATCH = 5_000


class TopicError(Exception):
    """The topic could not be read."""


def read(bootstrap_servers: str, topic: str = EVENTS, devices: str = "") -> Iterator[Row]:
    """Yield the records of devices whose names begin so, from the topic's beginning to its end; copies included."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oncegate-sim-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=READ_SECONDS_MAX).topics[topic]
        if known.error is not None:
            raise TopicError(f"kafka: {topic} at {bootstrap_servers}: {known.error}")
        consumer.assign([TopicPartition(topic, partition, 0) for partition in known.partitions])
        for record in _read_to_ends(consumer, topic, len(known.partitions)):
            if record.device.startswith(devices):
                yield record
    finally:
        consumer.close()


def _read_to_ends(consumer: Consumer, topic: str, partitions: int) -> Iterator[Row]:
    ends: set[int | None] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ends) < partitions:
        if time.monotonic() > deadline:
            raise TopicError(f"kafka: {topic} gave nothing for {READ_SECONDS_MAX:g} s, and its end is not reached")
        for message in consumer.consume(_BATCH, timeout=1.0):
            if not _is_record(message, topic):
                ends.add(message.partition())
            else:
                deadline = time.monotonic() + READ_SECONDS_MAX
                yield _row(message)


def _is_record(message: Message, topic: str) -> bool:
    """Whether it is a record, and not the end of a partition."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise TopicError(f"kafka: reading {topic}: {error}")
    return error is None


def _row(message: Message) -> Row:
    value = orjson.loads(_bytes(message.value()))
    return Row(
        device=value["device"],
        type=value["type"],
        id=value.get("id"),
        time=value.get("time"),
        data=value.get("data"),
        boot=value.get("boot"),
        epoch=value["epoch"],
        sequence=int(value["sequence"]),
        partition=message.partition(),
        offset=message.offset(),
        fingerprint=value["fingerprint"],
        at=message.timestamp()[1],
        gateway=value["gateway"],
    )


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
