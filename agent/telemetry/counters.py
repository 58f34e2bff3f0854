"""Counts of one protocol's deliveries and their outcomes, since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agent.delivery import Answer, Status


@dataclass(slots=True)
class DeliveryCounts:
    """Counts of one protocol; written in the loop's thread only, read in any."""

    acks: int = 0
    """Deliveries that were answered as durable."""
    accepted: int = 0
    """New events that are on disk."""
    duplicates: int = 0
    """Duplicates that the store has recognised."""
    possible_duplicates: int = 0
    """New events that name an earlier one that they may repeat."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Rejected events beside valid ones, by the kind of reason: `invalid` or `denied`."""
    refused: Counter[Status] = field(default_factory=Counter)
    """Deliveries that were refused as a whole, by status."""

    def add(self, answer: Answer) -> None:
        """Count one delivery's outcome."""
        if answer.status is Status.DURABLE:
            self.acks += 1
            self.accepted += answer.accepted
            self.duplicates += answer.duplicates
        else:
            self.refused[answer.status] += 1
