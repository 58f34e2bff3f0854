"""Estimates the memory of deliveries in progress, and bounds it for each protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.delivery import Delivery
from agent.store.port import Candidate, Reject

BYTES_MAX: Final = {"coap": 48 << 20, "zigbee2mqtt": 48 << 20, "mqtt": 48 << 20, "http": 24 << 20}
"""The bounds by `via`. MQTT has a far lower bound of its own (`agent.mqtt.reception`): at this one it would have to
disconnect from its broker."""
DELIVERY_BYTES: Final = 2_048
"""Of a delivery without its events: exchange, callbacks, submission."""
EVENT_BYTES: Final = 512
REJECT_BYTES: Final = 1_024
DATA_FACTOR: Final = 28
"""Memory for one byte of an event's text: an empty list is two characters and a comma in it, and up to 80 bytes as a
value. Usual data takes an eighth of that."""


class MemoryBudget:
    """The memory of one protocol's deliveries that are not answered yet."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        """An upper bound of what they use now."""

    @property
    def full(self) -> bool:
        """Whether the next delivery is refused; the last one may exceed the bound by its own size."""
        return self.bytes >= self._bytes_max


def memory_bytes(delivery: Delivery, candidates: Sequence[Candidate], rejects: Sequence[Reject]) -> int:
    """Return an upper bound of a delivery's memory until it is answered, in bytes."""
    text = 0
    for candidate in candidates:
        text += len(candidate.tail)
    events = EVENT_BYTES * len(candidates) + DATA_FACTOR * text
    return DELIVERY_BYTES + 2 * len(delivery.body) + events + REJECT_BYTES * len(rejects)
