"""The messages of devices that no list names yet: a message may arrive before the list."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from agent.mqtt.ack_order import PendingAck


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that waits for a list of devices."""

    ack: PendingAck
    name: str
    payload: bytes
    size: int
    """Bytes of the whole payload."""
    since: float
    """On the loop's clock."""


class PendingMessages:
    """The messages that wait for a list, oldest first, and those released, which wait to be processed."""

    def __init__(self) -> None:
        self._held: deque[PendingMessage] = deque()
        self._released: deque[PendingMessage] = deque()
        self._size = 0
        """Bytes of the messages that wait for a list, as `PendingAck.size` counts them."""

    def __len__(self) -> int:
        return len(self._held) + len(self._released)

    @property
    def since(self) -> float | None:
        """Since when the oldest message has waited for a list; None where none does."""
        return self._held[0].since if self._held else None

    @property
    def released(self) -> bool:
        """Whether a released message is left."""
        return bool(self._released)

    def add(self, pending: PendingMessage) -> None:
        """Add a message that waits for a list."""
        self._held.append(pending)
        self._size += pending.ack.size

    def release(self, since: float | None = None) -> None:
        """Release all messages that wait for a list; with a time, as if each had waited since then."""
        self._released += [pending if since is None else replace(pending, since=since) for pending in self._held]
        self._held.clear()
        self._size = 0

    def pop_released(self) -> PendingMessage:
        """Remove the oldest released message, and return it; there must be one."""
        return self._released.popleft()

    def drop_released(self) -> None:
        """Drop the released messages."""
        self._released.clear()

    def take_overdue(self, before: float, count_max: int, bytes_max: int) -> list[PendingMessage]:
        """Remove and return the messages that have waited since before a given time, and the oldest beyond the bounds.

        A single message of any size may wait.
        """
        removed = []
        while self._held and (
            self._held[0].since <= before
            or len(self._held) > count_max
            or (self._size > bytes_max and len(self._held) > 1)
        ):
            removed.append(self._held.popleft())
            self._size -= removed[-1].ack.size
        return removed
