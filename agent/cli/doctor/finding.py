"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Condition(Enum):
    """How it is."""

    FINE = "fine"
    WARNING = "warning"
    """It works, and is not what it should be; or it cannot be seen from here."""
    WRONG = "wrong"
    """The promise does not hold, or nothing works."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One look: at what, how it is, and what to do where it should be otherwise."""

    check: str
    condition: Condition
    text: str
    hint: str = ""


def fine(check: str, text: str) -> Finding:
    """Find that all is well."""
    return Finding(check, Condition.FINE, text)


def warning(check: str, text: str, hint: str = "") -> Finding:
    """Find what should be otherwise, or cannot be seen."""
    return Finding(check, Condition.WARNING, text, hint)


def wrong(check: str, text: str, hint: str = "") -> Finding:
    """Find what has to be otherwise."""
    return Finding(check, Condition.WRONG, text, hint)
