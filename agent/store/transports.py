"""The transports that recognise and answer retransmissions themselves, without the store."""

from __future__ import annotations

from collections.abc import Callable


class Transports:
    """Their duplicates are counted with the store's own; they forget their answers when events are given up."""

    def __init__(self) -> None:
        self._duplicates: list[Callable[[], int]] = []
        self._forget_answers: list[Callable[[], object]] = []

    def add(self, duplicates: Callable[[], int], forget_answers: Callable[[], object]) -> None:
        """Register a transport: how many duplicates it has answered since the start, and how it forgets its answers.

        Both are called on the writer's thread.
        """
        self._duplicates.append(duplicates)
        self._forget_answers.append(forget_answers)

    def duplicates(self) -> int:
        """Return how many duplicates all transports have answered since the start."""
        return sum(duplicates() for duplicates in self._duplicates)

    def forget_answers(self) -> None:
        """Make all transports forget their answers."""
        for forget in self._forget_answers:
            forget()
