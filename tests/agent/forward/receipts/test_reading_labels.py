"""The label of the record at an offset, read from a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from agent.forward.kafka.record import encode
from agent.forward.receipts.group_offsets import read_labels
from tests.agent.forward.broker import ANSWER_SECONDS_MAX, KafkaTopic
from tests.agent.forward.events import readings
from tests.agent.forward.running import GATEWAY
from tests.support.memory_outbox import stored

pytestmark = pytest.mark.kafka


class WaitingReader(Consumer):
    """A reader that does something once it has reached the log's end."""

    at_end: Callable[[], None] = staticmethod(lambda: None)

    def poll(self, timeout: float = -1) -> Message | None:
        message = super().poll(timeout)
        error = None if message is None else message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            self.at_end()
        return message


@contextmanager
def reader(kafka: KafkaTopic) -> Iterator[WaitingReader]:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "tests", "isolation.level": "read_committed"}
    settings |= {"enable.partition.eof": "true", "enable.auto.commit": "false", "auto.offset.reset": "error"}
    with closing(WaitingReader(settings)) as opened:
        yield opened


def produce(kafka: KafkaTopic, producer: Producer) -> None:
    """Send one event to partition 0."""
    key, value, headers = encode(stored(1, next(readings(1))), GATEWAY)
    producer.produce(kafka.topic, value, key, 0, headers=list(headers))
    assert producer.flush(ANSWER_SECONDS_MAX) == 0


@pytest.mark.guarantee(4)
def test_a_record_that_its_leader_does_not_show_yet_is_waited_for(kafka: KafkaTopic) -> None:
    """A leader that was just elected ends its log for readers lower than its predecessor, for a moment."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    with reader(kafka) as opened:
        opened.at_end = lambda: produce(kafka, producer)
        label = read_labels(opened, kafka.topic, {0: 0}, threading.Event())[0]
    assert (label.gateway, label.sequence) == (GATEWAY, 1)
