"""Read back what Kafka holds, record by record, as any consumer would see it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from contract.event import DEVICE_RESERVED_PREFIX
from contract.topics import EVENTS
from simulators.demo.error import DemoError

READ_SECONDS_MAX = 60.0
_BATCH = 5_000
_GATEWAY_KEY = DEVICE_RESERVED_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class TopicContents:
    """The records of sensors' events."""

    records: int
    """Copies included: the agent sends again what it may have sent."""
    first_times: list[int]
    """When each event arrived for the first time, by the broker's clock, in milliseconds."""


def read(bootstrap_servers: str) -> TopicContents:
    """Read the topic from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oncegate-demo-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(EVENTS, timeout=READ_SECONDS_MAX).topics[EVENTS].partitions
        consumer.assign([TopicPartition(EVENTS, partition, 0) for partition in partitions])
        return _read_to_ends(consumer, len(partitions))
    finally:
        consumer.close()


def _read_to_ends(consumer: Consumer, partitions: int) -> TopicContents:
    first_times: dict[tuple[bytes, bytes], int] = {}
    records = 0
    ends: set[int | None] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(ends) < partitions:
        if time.monotonic() > deadline:
            raise DemoError(f"kafka: {EVENTS} could not be read to its end within {READ_SECONDS_MAX:g} s")
        for message in consumer.consume(_BATCH, timeout=1.0):
            if not _is_record(message):
                ends.add(message.partition())
            elif not _text(message.key()).startswith(_GATEWAY_KEY):
                records += 1
                first_times.setdefault(_label(message), message.timestamp()[1])
    return TopicContents(records, list(first_times.values()))


def _is_record(message: Message) -> bool:
    """Tell a record from the end of a partition."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise DemoError(f"kafka: reading {EVENTS}: {error}")
    return error is None


def _label(message: Message) -> tuple[bytes, bytes]:
    """Give epoch and sequence, which copies of one record share."""
    headers = dict(message.headers() or [])
    return _text(headers.get("ce_epoch")), _text(headers.get("ce_sequence"))


def _text(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
