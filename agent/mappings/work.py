"""The bounded work of the expressions of one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

WORK_MAX: Final = 30_000
"""Steps, and elements of intermediate results, that the expressions of one message may take; some 20 ms."""

Root = Mapping[str, object]
"""What an expression sees: `body`, `topic`, `headers`, and with `each` also `item`."""


class ExpressionError(ValueError):
    """An expression cannot be compiled, or cannot be applied to this message."""


class Work:
    """Counts the work of the expressions of one message."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = WORK_MAX

    def spend(self, steps: int) -> None:
        """Raise ExpressionError where the work is used up."""
        self.left -= steps
        if self.left < 0:
            raise ExpressionError(f"the expressions take more than {WORK_MAX} steps for this message")


Evaluate = Callable[[Root, Work], object]
"""Applies an expression; returns None where it yields nothing. Raises ExpressionError."""
