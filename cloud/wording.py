"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun, whose plural ends in s if no other one is given."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
