"""What came in by one way and what became of it, counted since the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agent.delivery import Answer, Status


@dataclass(slots=True)
class Tally:
    """Counts of one way in; read by anyone, written in the loop's thread only."""

    accepted: int = 0
    """Events that are on disk because of it."""
    duplicates: int = 0
    """Copies that the store has recognised."""
    rejected: int = 0
    """Invalid events beside valid ones."""
    refused: Counter[Status] = field(default_factory=Counter)
    """Deliveries of which nothing was taken, by the reason."""

    def add(self, answer: Answer) -> None:
        """Count one delivery's outcome."""
        if answer.status is Status.DURABLE:
            self.accepted += answer.accepted
            self.duplicates += answer.duplicates
            self.rejected += answer.rejected
        else:
            self.refused[answer.status] += 1
