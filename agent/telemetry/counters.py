"""Counts of one protocol's deliveries and their outcomes since the start, and their memory while in progress."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.delivery import Answer, Delivery, Status
from agent.store.port import Candidate, Reject


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of one protocol; written in the loop's thread only, read in any."""

    acks: int = 0
    """Deliveries that were answered as durable."""
    taken: int = 0
    """Those of them with an event that is on disk, new or a duplicate."""
    accepted: int = 0
    """New events that are on disk."""
    duplicates: int = 0
    """Duplicates that the store has recognised."""
    possible_duplicates: int = 0
    """New events that name an earlier one that they may repeat."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rejected events beside valid ones, by the kind of reason: `invalid` or `denied`."""
    mapped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What mappings made of messages or their elements, by mapping and outcome: `event`, `skipped` or `rejected`."""
    refused: Counter[Status] = field(default_factory=Counter)
    """Requests that were refused as a whole, by status; messages that were rejected as a whole, too."""

    def add(self, answer: Answer) -> None:
        """Count a delivery that was answered as durable."""
        self.acks += 1
        self.taken += answer.accepted + answer.duplicates > 0
        self.accepted += answer.accepted
        self.duplicates += answer.duplicates


@dataclass(frozen=True, slots=True)
class Transport:
    """What a protocol's server counts itself, since the pipeline never sees it."""

    duplicates: Callable[[], int]
    """Retransmissions that it has recognised."""
    unserved: Callable[[], Mapping[str, int]]
    """Messages that had no effect, by reason."""
    trouble: str = ""
    """Why it refuses what the configuration lets in; empty where it does not."""


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
    """Return an upper bound of a delivery's memory until it is answered, in bytes (decision 35)."""
    text = 0
    for candidate in candidates:
        text += len(candidate.tail)
    events = EVENT_BYTES * len(candidates) + DATA_FACTOR * text
    return DELIVERY_BYTES + 2 * len(delivery.body) + events + REJECT_BYTES * len(rejects)
