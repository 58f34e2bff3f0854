"""A prototype of receipts by a compacted topic, instead of the group's offsets: one record for all partitions.

The job would write one record after its commits, at most every `poll_seconds`: table, topic id, and by partition the
offset up to which the table has read, the first offset, the log's end and the leader epoch. A gateway reads it by one
Fetch that waits at the broker, so each is answered after an interval of its own, and not all at once.
"""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC = "oncegate.receipts"
MIN_BYTES = 1_000_000
"""More than there ever is, so that the broker answers after the wait, and not all gateways at each record."""
READ_SECONDS_MAX = 60


def write(servers: str, partitions: int, group: str) -> int:
    """Write a receipt of all partitions, as the job would; return the size of its value."""
    of_partition = {number: [0, 1_000_000_000 + number, 1_000_000_500 + number, 7] for number in range(partitions)}
    value = json.dumps({"table": "0" * 36, "succeeds": None, "topic_id": "A" * 22, "partitions": of_partition}).encode()
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": "true"})
    producer.produce(TOPIC, value, group.encode())
    if producer.flush(READ_SECONDS_MAX):
        raise RuntimeError("the receipt was not written")
    return len(value)


def open_reader(servers: str, wait_seconds: float) -> Consumer:
    """Return a reader of the latest receipt, as a gateway would use."""
    config: dict[str, str | int | bool] = {
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": int(wait_seconds * 1000),
        "fetch.min.bytes": MIN_BYTES,
        "fetch.error.backoff.ms": 0,
        "socket.timeout.ms": int(wait_seconds * 1000) + 10_000,
    }
    return Consumer(config)


def read_latest(reader: Consumer) -> dict[str, object]:
    """Return the latest receipt."""
    end = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), READ_SECONDS_MAX)
    assert end is not None
    reader.assign([TopicPartition(TOPIC, 0, end[1] - 1)])
    deadline = time.monotonic() + READ_SECONDS_MAX
    while time.monotonic() < deadline:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            found: dict[str, object] = json.loads(message.value() or b"")
            return found
    raise RuntimeError("no receipt was read")
