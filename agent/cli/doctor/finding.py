"""The findings of the checks."""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial


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
    condition: Condition = field(kw_only=True)
    text: str
    hint: str = ""


fine = partial(Finding, condition=Condition.FINE)
warning = partial(Finding, condition=Condition.WARNING)
"""Of what should be corrected, or cannot be checked."""
wrong = partial(Finding, condition=Condition.WRONG)
"""Of what has to be corrected."""
