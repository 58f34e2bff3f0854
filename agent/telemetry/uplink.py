"""The use of an uplink whose bytes are capped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UplinkState:
    """What was sent over a capped uplink, and what an event takes of it."""

    bytes_per_second_max: int
    sent_bytes: int
    """Since the start, retries and the requests about the topic included."""
    bytes_per_event: float
    """For each event that was sent lately; 0 where none was."""

    def seconds_left(self, events: int) -> float | None:
        """Return how long it takes to send so many events; None where it is not known yet what one takes."""
        if not events:
            return 0.0
        return events * self.bytes_per_event / self.bytes_per_second_max if self.bytes_per_event else None
