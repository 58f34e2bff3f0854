"""Messages of devices that no list names yet: a message may come before the list, and is never guessed about."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from agent.mqtt.packets import Message
from agent.mqtt.turns import Turn

STRANGERS_MAX = 1_000
"""Names remembered as unknown, so that their next messages need not wait."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that waits for a list of devices."""

    turn: Turn
    name: str
    message: Message
    since: float
    """On the loop's clock."""


class Holding:
    """What waits for a list, and the names for which waiting was in vain."""

    def __init__(self) -> None:
        self._held: deque[Held] = deque()
        self._strangers: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, held: Held) -> None:
        """Let a message wait."""
        self._held.append(held)

    def is_stranger(self, name: str) -> bool:
        """Tell whether the latest list is known not to have this name."""
        return name in self._strangers

    def release(self) -> list[Held]:
        """Give all that waits, since a new list is there; what was unknown may be known by it."""
        self._strangers.clear()
        held = list(self._held)
        self._held.clear()
        return held

    def overdue(self, before: float) -> list[Held]:
        """Give what has waited since before a moment; its names are strangers from now on."""
        overdue = []
        while self._held and self._held[0].since <= before:
            overdue.append(self._held.popleft())
        if len(self._strangers) < STRANGERS_MAX:
            self._strangers.update(held.name for held in overdue)
        return overdue
