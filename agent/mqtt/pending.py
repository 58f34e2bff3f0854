"""Messages of devices that no list names yet: a message may come before the list, and is never guessed about."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from agent.mqtt.ack_order import Turn


@dataclass(frozen=True, slots=True)
class Held:
    """A message that waits for a list of devices."""

    turn: Turn
    name: str
    payload: bytes
    size: int
    """Bytes of the whole payload."""
    since: float
    """On the loop's clock."""


class Holding:
    """What waits for a list, the oldest first, and what waits no longer, for its turn."""

    def __init__(self) -> None:
        self._held: deque[Held] = deque()
        self._released: deque[Held] = deque()
        self._size = 0
        """Of what waits for a list, as `Turn.size` counts."""

    def __len__(self) -> int:
        return len(self._held) + len(self._released)

    @property
    def since(self) -> float | None:
        """Since when the oldest has waited for a list; None where nothing does."""
        return self._held[0].since if self._held else None

    @property
    def released(self) -> bool:
        """Whether something waits for its turn alone."""
        return bool(self._released)

    def hold(self, held: Held) -> None:
        """Keep a message until a list comes."""
        self._held.append(held)
        self._size += held.turn.size

    def release(self, since: float | None = None) -> None:
        """Have all that waits for a list wait for its turn alone; with a moment, as if each had waited since then."""
        self._released += [held if since is None else replace(held, since=since) for held in self._held]
        self._held.clear()
        self._size = 0

    def next_released(self) -> Held:
        """Remove the oldest of what waits for its turn alone, and return it; there is one."""
        return self._released.popleft()

    def drop_released(self) -> None:
        """Forget what waits for its turn alone."""
        self._released.clear()

    def overdue(self, before: float, count_max: int, bytes_max: int) -> list[Held]:
        """Remove what has waited since before a moment, and the oldest of what exceeds the bounds; return it.

        One message waits whatever its size.
        """
        overdue = []
        while self._held and (
            self._held[0].since <= before
            or len(self._held) > count_max
            or (self._size > bytes_max and len(self._held) > 1)
        ):
            overdue.append(self._held.popleft())
            self._size -= overdue[-1].turn.size
        return overdue
