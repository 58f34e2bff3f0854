"""Sends acknowledgements in the order of receipt (MQTT 5 section 4.6), for outcomes in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class PendingAck:
    """The acknowledgement of one message in progress."""

    message_id: int
    """0 for a message at QoS 0, which is not acknowledged and has no place in the order."""
    size: int
    done: bool = False


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
