"""The results of the checks: counts, declared limits, and the first examples of each violation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simulators.oracle.verdict import Violation

EXAMPLES_MAX = 20
"""Largest number of examples of each violation."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The properties of a run that decide what can be judged."""

    has_table: bool = True
    of_topic: bool = False
    """Whether the events of the topic are judged in place of a table's rows."""
    gateways: int = 1
    complete: bool = True
    """Whether the run finished; False where it was interrupted."""
    settled: bool = True
    """Whether all accepted events must be in the table by now; otherwise a missing one may still be in transit."""
    arriving: bool = False
    """Whether rows were still arriving when the table was read."""
    one_clock: bool = False
    """Whether sensors, Kafka and job shared one clock, so that their timestamps can be compared."""


@dataclass(slots=True)
class Findings:
    """The counts and examples that the checks collect."""

    counts: Counter[str] = field(default_factory=Counter)
    declared: Counter[str] = field(default_factory=Counter)
    examples: list[Violation] = field(default_factory=list)
    _kept: Counter[str] = field(default_factory=Counter)

    def add(self, violation: Violation, count: int = 1) -> None:
        """Count a violation, and keep it as an example where it is among the first of its kind."""
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
