"""The findings of the checks."""

from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    """The result of a check."""

    FINE = "fine"
    WARNING = "warning"
    """It works, but not as recommended; or it cannot be checked from here."""
    WRONG = "wrong"
    """A guarantee does not hold, or the agent cannot work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: the check, its result, the facts, and a remedy where one is needed."""

    check: str
    condition: Condition
    text: str
    hint: str = ""


def fine(check: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(check, Condition.FINE, text)


def warning(check: str, text: str, hint: str = "") -> Finding:
    """Return a finding that should be corrected, or cannot be checked."""
    return Finding(check, Condition.WARNING, text, hint)


def wrong(check: str, text: str, hint: str = "") -> Finding:
    """Return a finding that has to be corrected."""
    return Finding(check, Condition.WRONG, text, hint)
