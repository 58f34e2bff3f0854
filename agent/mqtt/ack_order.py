"""Acknowledgements in the order of receipt (MQTT 5 section 4.6), whatever the order of the outcomes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Turn:
    """One message in work."""

    message_id: int
    """0: came at QoS 0. Nobody waits for its acknowledgement, so it has no place in the order."""
    size: int
    done: bool = False


class Turns:
    """The messages of one connection that are in work."""

    def __init__(self, acknowledge: Callable[[int], None]) -> None:
        self._acknowledge = acknowledge
        self._queue: deque[Turn] = deque()
        """Those that wait for their acknowledgement."""
        self._unordered = 0
        """How many others are in work."""
        self.size = 0
        """Bytes of all messages in work."""
        self.acknowledged = 0

    def __len__(self) -> int:
        return len(self._queue) + self._unordered

    def open(self, message_id: int, size: int) -> Turn:
        """Begin with a message; where it will be acknowledged, it takes its place in the order."""
        turn = Turn(message_id, size)
        if message_id:
            self._queue.append(turn)
        else:
            self._unordered += 1
        self.size += size
        return turn

    def finish(self, turn: Turn) -> None:
        """Note that a message is dealt with; acknowledge all that have become due by it."""
        if not turn.message_id:
            self._unordered -= 1
            self.size -= turn.size
            return
        turn.done = True
        while self._queue and self._queue[0].done:
            due = self._queue.popleft()
            self.size -= due.size
            self._acknowledge(due.message_id)
            self.acknowledged += 1
