"""The fingerprints of a whole topic, with partitions and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaException, TopicPartition

KEY_BYTES = 16
FETCH_RECORDS = 10_000
WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Fingerprints in the order of their append to Kafka, each with its partition and offset."""

    keys: npt.NDArray[np.void]
    partitions: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]


def read_topic(bootstrap_servers: str, topic: str, properties: dict[str, str]) -> Recorded:
    """Read the topic's present records, without joining a group; records without a fingerprint are left out."""
    consumer = Consumer(
        {
            **properties,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "oncegate-bloom",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in partitions}
        consumer.assign([TopicPartition(topic, p, -2) for p, end in ends.items() if end])
        return _collect(consumer, {partition for partition, end in ends.items() if end})
    finally:
        consumer.close()


def _collect(consumer: Consumer, open_partitions: set[int]) -> Recorded:
    rows: list[tuple[int, int, int, bytes]] = []
    while open_partitions:
        for message in consumer.consume(FETCH_RECORDS, WAIT_SECONDS):
            error = message.error()
            if error is not None:
                if error.name() != "_PARTITION_EOF":
                    raise KafkaException(error)
                open_partitions.discard(message.partition() or 0)
                continue
            if (key := _fingerprint(message.headers())) is not None:
                rows.append((message.timestamp()[1], message.partition() or 0, message.offset() or 0, key))
    rows.sort(key=lambda row: row[:3])
    return Recorded(
        np.array([row[3] for row in rows], dtype=f"V{KEY_BYTES}"),
        np.array([row[1] for row in rows], np.int32),
        np.array([row[2] for row in rows], np.int64),
    )


def _fingerprint(headers: Any) -> bytes | None:
    for name, value in headers or ():
        if name == "ce_id" and value is not None and len(value) == 2 * KEY_BYTES:
            try:
                return bytes.fromhex(value.decode("ascii"))
            except ValueError:
                return None
    return None
