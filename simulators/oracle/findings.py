"""What the checks find: counts, declared limits, and the first examples of each sort."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simulators.oracle.verdict import Violation

EXAMPLES_MAX = 20
"""Of each sort of violation."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is known of a run, and so what can be judged of it."""

    has_table: bool = True
    gateways: int = 1
    complete: bool = True
    """False where the run was interrupted."""
    settled: bool = True
    """Whether all that the gateways have accepted is said to be in the table."""
    one_clock: bool = False
    """Whether sensors, Kafka and job ran on one machine, so that their moments can be compared."""


@dataclass(slots=True)
class Findings:
    """What is counted while the checks run."""

    counts: Counter[str] = field(default_factory=Counter)
    declared: Counter[str] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    _kept: Counter[str] = field(default_factory=Counter)

    def add(self, violation: Violation, count: int = 1) -> None:
        """Count a violation, and keep it where it is among the first of its sort."""
        self.counts[violation.what] += count
        if self._kept[violation.what] < EXAMPLES_MAX:
            self._kept[violation.what] += 1
            self.examples.append(violation)

    def take_back(self, violation: Violation) -> None:
        """Undo one `add`."""
        self.counts[violation.what] -= 1
        if violation in self.examples:
            self._kept[violation.what] -= 1
            self.examples.remove(violation)
