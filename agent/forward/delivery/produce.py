"""Hands records to a producer, and closes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from agent.forward.delivery.oversized import TOO_LARGE_CODES
from agent.forward.delivery.session import POLL_SECONDS_MAX
from agent.forward.errors import SessionError
from agent.forward.kafka.client import code_of, describe
from contract.record import Record

if TYPE_CHECKING:
    from confluent_kafka._types import HeadersType

PURGE_POLLS_MAX: Final = 10
"""Rounds of POLL_SECONDS_MAX in which a purged producer reports its records."""

Delivered = Callable[[KafkaError | None, Message], None]


def hand_over(
    producer: Producer,
    topic: str,
    record: Record,
    delivered: Delivered,
    check: Callable[[], None],
    partition: int,
) -> bool:
    """Hand a record to the producer; return False where it is too large.

    While the producer's queue is full, `check` is called, which raises where waiting is pointless.
    """
    key, value, headers = record
    while True:
        try:
            producer.produce(topic, value, key, partition, delivered, headers=cast("HeadersType", headers))
            return True
        except BufferError:  # the user's own bounds of librdkafka's queue are below ours
            serve(producer, POLL_SECONDS_MAX)
            check()
        except KafkaException as error:
            if code_of(error) not in TOO_LARGE_CODES:
                raise SessionError(describe(error)) from error
            return False


def serve(producer: Producer, seconds: float) -> None:
    """Process delivery reports; sleep for `seconds` where there is none.

    Does not wait within the client, whose waits lengthen when the wall clock is set back (`wall_steps`).
    """
    if not producer.poll(0):
        time.sleep(seconds)


def discard(producer: Producer) -> None:
    """Abandon a producer and its records; bounded in time, whatever the broker does."""
    with suppress(KafkaException):  # a producer with a fatal error raises at every call
        producer.purge()
    for _ in range(PURGE_POLLS_MAX):
        if not len(producer):
            break
        with suppress(KafkaException):
            serve(producer, POLL_SECONDS_MAX)
