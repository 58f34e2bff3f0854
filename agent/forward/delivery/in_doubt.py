"""The durable count of in-doubt events: those sent at most once whose arrival is unknown."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InDoubtBatches:
    """The batch in flight, and how many events of earlier ones may be lost."""

    first: int = 0
    last: int = -1
    """Positions in flight; none where last is below first."""
    lost_max: int = 0
    """Events that were in flight when a connection or the agent ended, since the store was created."""

    @property
    def in_flight(self) -> int:
        """How many events are in flight."""
        return self.last - self.first + 1

    def with_batch(self, first: int, last: int) -> InDoubtBatches:
        """Return the state in which this batch is in flight."""
        return InDoubtBatches(first, last, self.lost_max)

    def settled(self) -> InDoubtBatches:
        """Return the state after the batch in flight has arrived."""
        return InDoubtBatches(lost_max=self.lost_max)

    def abandoned(self) -> InDoubtBatches:
        """Return the state after it became unknown whether the batch in flight has arrived."""
        return InDoubtBatches(lost_max=self.lost_max + self.in_flight)

    def __str__(self) -> str:
        """Return the fact's text."""
        return json.dumps([self.first, self.last, self.lost_max])


def read_in_doubt(fact: str | None) -> InDoubtBatches:
    """Return the state that a fact holds; nothing is in doubt where there is none."""
    return InDoubtBatches(*json.loads(fact)) if fact else InDoubtBatches()
