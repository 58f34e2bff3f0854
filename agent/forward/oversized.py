"""Records that Kafka can never take: found out one by one, and given up, so that the rest goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError

from agent.forward.error import SessionError
from agent.forward.records import read_front
from agent.store.port import Outbox, StoredEvent

TOO_LARGE_CODES: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
"""Refusals that another try would only repeat."""
REASON: Final = "too large for Kafka"
_HINT: Final = "raise message.max.bytes in kafka.properties and max.message.bytes of the topic"

_log = logging.getLogger(__name__)


class Suspects:
    """Positions of events one of which the broker has refused: each goes alone, so that it is seen which."""

    def __init__(self) -> None:
        self._positions: set[int] = set()

    def add(self, first: int, last: int) -> None:
        """Suspect all from first to last."""
        self._positions.update(range(first, last + 1))

    def holds(self, position: int) -> bool:
        """Tell whether this one has to go alone."""
        return position in self._positions

    def clear(self, position: int) -> None:
        """Note that it is known what this one is."""
        self._positions.discard(position)

    def cut(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Give those of consecutive events that may go together: up to the first suspect, or that one alone."""
        if not self._positions:
            return events
        for place, event in enumerate(events):
            if event.position in self._positions:
                return events[: max(place, 1)]
        return events


def give_up(outbox: Outbox, event: StoredEvent, size: int) -> None:
    """Make a gap of an event whose record is too large.

    Raises SessionError where it is the gateway's own: those are small, so it is the settings that are wrong, and
    giving up what declares a gap would never end.
    """
    label = event.label
    if read_front(event.tail).via == "gateway":
        raise SessionError(f"not even the gateway's own event of {size} bytes is taken; {_HINT}")
    outbox.give_up(event.position, REASON)
    _log.error(
        "event=given-up reason=%r fingerprint=%s epoch=%s sequence=%d bytes=%d hint=%r",
        REASON,
        event.fingerprint.hex(),
        label.epoch,
        label.sequence,
        size,
        _HINT,
    )
