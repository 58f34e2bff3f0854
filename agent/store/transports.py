"""The transports that recognise and answer retransmissions themselves, without the store."""

from __future__ import annotations

from collections.abc import Callable


class Transports:
    """Their duplicates are counted with the store's own; their cached answers are removed when events are given up."""

    def __init__(self) -> None:
        self._duplicates: list[Callable[[], int]] = []
        self._forget_answers: list[Callable[[], object]] = []

    def add(self, duplicates: Callable[[], int], forget_answers: Callable[[], object]) -> None:
        """Register a transport: its count of duplicates since the start, and a function that clears its answers.

        Both are called on the writer's thread.
        """
        self._duplicates.append(duplicates)
        self._forget_answers.append(forget_answers)

    def duplicates(self) -> int:
        """Return how many duplicates all transports have answered since the start."""
        return sum(duplicates() for duplicates in self._duplicates)

    def forget_answers(self) -> None:
        """Clear the cached answers of all transports."""
        for forget in self._forget_answers:
            forget()
