"""The state that is in the agent's process only, for the views: the uplink's, and the latest warnings."""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.log_pairs import pairs
from agent.telemetry.links import Links

ERRORS_MAX = 50
CHARACTERS_MAX = 1_000
"""Of a message, and of each of its values: a reason may contain text of a sender."""


class RecentErrors(logging.Handler):
    """Keeps the latest warnings and errors of this process's log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._errors: deque[dict[str, object]] = deque(maxlen=ERRORS_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.append(
            {
                "time": int(record.created * 1000),
                "level": record.levelname.lower(),
                "message": record.getMessage()[:CHARACTERS_MAX],
                "fields": {key: value[:CHARACTERS_MAX] for key, value in pairs(record)},
            }
        )

    def errors(self) -> list[dict[str, object]]:
        """Return the latest warnings and errors, in order."""
        return list(self._errors)


@dataclass(frozen=True, slots=True)
class UplinkState:
    """The use of a capped uplink: bytes sent, and bytes for each event."""

    bytes_per_second_max: int
    sent_bytes: int
    """Since the start, retries and the requests about the topic included."""
    bytes_per_event: float
    """For each event that was sent lately; 0 where none was."""

    def seconds_left(self, events: int) -> float | None:
        """Return how long sending so many events takes; None while the bytes for each are unknown."""
        if not events:
            return 0.0
        return events * self.bytes_per_event / self.bytes_per_second_max if self.bytes_per_event else None


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The parts that report it."""

    recent_errors: RecentErrors
    links: Mapping[str, Links]
    """The connections of each lane, by its name."""
    uplink: Callable[[], UplinkState] | None
    """Returns the use of a capped uplink; None where no cap is set."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of each lane, by its name; empty without lanes."""
