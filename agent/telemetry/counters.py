"""What came in by one way and what became of it, counted since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agent.delivery import Answer, Status


@dataclass(slots=True)
class Tally:
    """Counts of one way in; read by anyone, written in the loop's thread only."""

    acks: int = 0
    """Deliveries that were answered as durable."""
    accepted: int = 0
    """Events that are on disk because of it."""
    duplicates: int = 0
    """Copies that the store has recognised."""
    possible_duplicates: int = 0
    """New events that name an earlier one which they may repeat."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Events beside valid ones of which nothing was taken, by the kind of reason: `invalid` or `denied`."""
    refused: Counter[Status] = field(default_factory=Counter)
    """Deliveries of which nothing was taken, by the reason."""

    def add(self, answer: Answer) -> None:
        """Count one delivery's outcome."""
        if answer.status is Status.DURABLE:
            self.acks += 1
            self.accepted += answer.accepted
            self.duplicates += answer.duplicates
        else:
            self.refused[answer.status] += 1
