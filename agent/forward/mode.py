"""The delivery modes: what a send promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from confluent_kafka import KafkaError, Message, Producer

from agent.forward.records import Record
from agent.store.port import Batch, Outbox

if TYPE_CHECKING:
    from confluent_kafka._types import HeadersType

Delivered = Callable[[KafkaError | None, Message], None]


class Mode(Protocol):
    """What differs between the delivery modes; the forwarder does the rest."""

    fixed: Mapping[str, str | None]
    """The librdkafka properties that the promise depends on: nobody may override them, nor give those that are None."""
    flights_max: int
    """How many batches may be sent and not yet acked; with a batch's bounds it bounds the forwarder's memory."""

    def begin(self, config: dict[str, Any]) -> Producer:
        """Open a producer session; raise KafkaException where that fails."""

    def send(self, producer: Producer, topic: str, record: Record, delivered: Delivered) -> None:
        """Hand over one record; raise BufferError where the producer is full, KafkaException where it refuses."""

    def end(self, batch: Batch) -> None:
        """Remember a batch that the broker has acked in a topic that has been confirmed since."""


class AtLeastOnce:
    """Every event reaches the topic; a session sends it once, and one that is cut off may have it sent again."""

    fixed: Mapping[str, str | None] = {
        "acks": "all",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
        "delivery.report.only.error": None,
        "transactional.id": None,
    }
    flights_max: int = 8

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def begin(self, config: dict[str, Any]) -> Producer:
        """Open an idempotent producer: it repeats what it must without doubling or reordering."""
        return Producer(config)

    def send(self, producer: Producer, topic: str, record: Record, delivered: Delivered) -> None:
        """Send a record that stays `new` in the outbox until its batch ends."""
        headers = cast("HeadersType", record.headers)
        producer.produce(topic, record.value, record.key, headers=headers, on_delivery=delivered)

    def end(self, batch: Batch) -> None:
        """Mark the batch forwarded."""
        self._outbox.mark_forwarded(batch)
