"""Counts of one protocol's deliveries and their outcomes, since the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.delivery import Answer, Status


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
    skipped: int = 0
    """Messages, or elements of them, that a mapping takes for no events: acknowledged, and not stored."""
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
