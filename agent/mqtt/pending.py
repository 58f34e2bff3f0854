"""The messages in progress: their acknowledgements, and the messages of devices not listed yet.

Acknowledgements are sent in the order of receipt (MQTT 5 section 4.6), for outcomes in any order. A message may arrive
before the list that names its device.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(slots=True, eq=False)
class PendingAck:
    """The acknowledgement of one message in progress."""

    message_id: int
    """0 for a message at QoS 0, which is not acknowledged and has no place in the order."""
    size: int
    done: bool = False


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
        self._waiting: deque[PendingMessage] = deque()
        self.released: deque[PendingMessage] = deque()
        """Those that no list keeps waiting any more, oldest first."""
        self._size = 0
        """Bytes of the messages that wait for a list, as `PendingAck.size` counts them."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self.released)

    @property
    def since(self) -> float | None:
        """Since when the oldest message has waited for a list; None where none does."""
        return self._waiting[0].since if self._waiting else None

    def add(self, pending: PendingMessage) -> None:
        self._waiting.append(pending)
        self._size += pending.ack.size

    def release(self, since: float | None = None) -> None:
        """Release all messages that wait for a list; with a time, as if each had waited since then."""
        self.released += [pending if since is None else replace(pending, since=since) for pending in self._waiting]
        self._waiting.clear()
        self._size = 0

    def pop_overdue(self, before: float, count_max: int, bytes_max: int) -> list[PendingMessage]:
        """Remove and return the messages waiting since a time or longer, and the oldest beyond the bounds.

        A single message of any size may wait.
        """
        removed = []
        while self._waiting and (
            self._waiting[0].since <= before
            or len(self._waiting) > count_max
            or (self._size > bytes_max and len(self._waiting) > 1)
        ):
            removed.append(self._waiting.popleft())
            self._size -= removed[-1].ack.size
        return removed


class AckOrder:
    """The acknowledgements of one connection that are due or in progress."""

    def __init__(self, acknowledge: Callable[[int], None]) -> None:
        self._acknowledge = acknowledge
        self._queue: deque[PendingAck] = deque()
        """Those of messages at QoS 1, in the order of receipt."""
        self._unordered = 0
        """How many messages at QoS 0 are in progress."""
        self.size = 0
        """Bytes of all messages in progress."""
        self.acknowledged = 0

    def __len__(self) -> int:
        return len(self._queue) + self._unordered

    def open(self, message_id: int, size: int) -> PendingAck:
        """Begin a message; at QoS 1 it takes its place in the order."""
        ack = PendingAck(message_id, size)
        if message_id:
            self._queue.append(ack)
        else:
            self._unordered += 1
        self.size += size
        return ack

    def finish(self, ack: PendingAck) -> None:
        """Finish a message; send all acknowledgements that become due."""
        if not ack.message_id:
            self._unordered -= 1
            self.size -= ack.size
            return
        ack.done = True
        while self._queue and self._queue[0].done:
            due = self._queue.popleft()
            self.size -= due.size
            self._acknowledge(due.message_id)
            self.acknowledged += 1
