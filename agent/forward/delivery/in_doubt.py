"""The account of what was sent at most once: how many events may not have arrived."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Account:
    """What is known of events that may or may not have arrived."""

    first: int = 0
    last: int = -1
    """Positions in flight; none where last is below first."""
    unsure: int = 0
    """How many were in flight, in all the store's life, when it became unknown whether they arrived."""

    @property
    def in_flight(self) -> int:
        """How many are on their way."""
        return self.last - self.first + 1

    def sending(self, first: int, last: int) -> Account:
        """Take a batch that is about to be sent."""
        return Account(first, last, self.unsure)

    def settled(self) -> Account:
        """Learn that what was in flight has arrived."""
        return Account(unsure=self.unsure)

    def gone(self) -> Account:
        """Learn that nobody knows."""
        return Account(unsure=self.unsure + self.in_flight)

    def __str__(self) -> str:
        """Write the fact."""
        return json.dumps([self.first, self.last, self.unsure])


def read_account(fact: str | None) -> Account:
    """Read the fact."""
    return Account(*json.loads(fact)) if fact else Account()
