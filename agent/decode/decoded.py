"""What decoding makes of a body: the valid events and the rejected ones, or an error, never worth a retry."""

from dataclasses import dataclass
from typing import Final, final

from contract.event import Event


class DecodeError(ValueError):
    """The root of the errors of decoding."""


class Undecodable(DecodeError):  # noqa: N818  # the name states the problem
    """The body as a whole cannot be read."""


class UnknownFormat(DecodeError):  # noqa: N818  # the name states the problem
    """The body's media type is not one of the supported formats."""


class InvalidEvent(DecodeError):  # noqa: N818  # the name states the problem
    """One event of a body is invalid; the others are not affected."""


EVENTS_MAX: Final = 512
"""Events in one body. Each takes up to 40 microseconds, during which no other sensor is served (decision 32)."""
REJECTED_BYTES_MAX: Final = 4096
"""Bytes of one rejected event that are kept."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An invalid event, with the beginning of its bytes."""

    device: str
    """The device that the event names, where that is readable; else the sender."""
    reason: str
    raw: bytes


@final
@dataclass(slots=True, init=False)
class Decoded:
    """The valid events of a body in their order, and the rejected ones."""

    events: tuple[Event, ...]
    rejected: tuple[Rejected, ...]
    skipped: int
    """How many messages or elements a mapping has left out: no events, and nothing wrong."""

    def __init__(self, events: tuple[Event, ...], rejected: tuple[Rejected, ...] = (), skipped: int = 0) -> None:
        self.events = events
        self.rejected = rejected
        self.skipped = skipped
