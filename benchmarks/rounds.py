"""Rounds: all contenders run in turns, every other round in reverse order, so that none always follows the same one."""

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from benchmarks import report
from benchmarks.report import Figure
from simulators.services.error import ServiceError

T = TypeVar("T")
Contender = Callable[[], Iterable[tuple[str, T]]]
"""Runs once, and yields its rows: the name of each, and what was measured."""
FAILURES = (ServiceError, KafkaException, OSError, subprocess.CalledProcessError, ValueError)
"""What costs a contender its rows of one round alone: the others go on."""


@dataclass(slots=True)
class Rounds(Generic[T]):
    """What was measured of each row, by the number of the round."""

    rows: dict[str, dict[int, T]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def run(self, contenders: Mapping[str, Contender[T]], count: int) -> None:
        """Run all contenders in each round."""
        for number in range(count):
            for name in contenders if number % 2 == 0 else reversed(list(contenders)):
                try:
                    for row, found in contenders[name]():
                        self.rows.setdefault(row, {})[number] = found
                        report.progress(f"round {number + 1} of {count}: {row}: {found}")
                except FAILURES as error:
                    self.failed.append(name)
                    report.progress(f"round {number + 1} of {count}: {name} not measured: {error}")

    def compared(
        self,
        name: str,
        row: str,
        other: str,
        value: Callable[[T], float],
        goal: float | None = None,
        *,
        at_least: bool = False,
    ) -> Iterator[Figure]:
        """Yield a row as a multiple of another one, over the rounds that have both; nothing where none has."""
        ours, theirs = self.rows.get(row, {}), self.rows.get(other, {})
        if shared := sorted(ours.keys() & theirs.keys()):
            each = [value(ours[number]) / value(theirs[number]) for number in shared]
            yield report.middle(name, each, "times", goal, at_least=at_least)
