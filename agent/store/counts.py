"""The events in the store by state; apart from the compiled modules, since other counts are derived from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Events in the store by state."""

    new: int
    forwarded: int
    processed: int
    lost: int = 0
    """In gaps declared by gateway.gap events; as far as the latest gaps cover."""

    @classmethod
    def total(cls, counts: Iterable[EventCounts]) -> EventCounts:
        """Return the counts of several stores together."""
        return cls(*map(sum, zip(*map(astuple, counts), strict=True)))
