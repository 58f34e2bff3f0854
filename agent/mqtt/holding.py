"""Messages of devices that no list names yet: a message may come before the list, and is never guessed about."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from agent.mqtt.turns import Turn


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
    """What waits for a list, the oldest first."""

    def __init__(self) -> None:
        self._held: deque[Held] = deque()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def since(self) -> float:
        """Since when the oldest has waited; there is one."""
        return self._held[0].since

    def hold(self, held: Held) -> None:
        """Let a message wait."""
        self._held.append(held)

    def release(self, since: float | None = None) -> list[Held]:
        """Return all that waits; with a moment, as if each had waited since then."""
        released = [held if since is None else replace(held, since=since) for held in self._held]
        self._held.clear()
        return released

    def overdue(self, before: float, count_max: int) -> list[Held]:
        """Return what has waited since before a moment, and the oldest of what exceeds a number."""
        overdue = []
        while self._held and (len(self._held) > count_max or self._held[0].since <= before):
            overdue.append(self._held.popleft())
        return overdue
