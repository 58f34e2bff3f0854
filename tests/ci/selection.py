"""The heavy tests that CI runs after `make test`: a fixed list, the most valuable first, and a share of all others.

The share changes with each commit, so that after SHARES commits each heavy test has run whose duration is known.
"""

from __future__ import annotations

import subprocess
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

LIST_SECONDS_MAX = 960
SHARE_SECONDS_MAX = 1_500
"""Time limits on two slow cores, with the starts of Kafka, Spark and PostgreSQL."""
SECONDS_MAX = LIST_SECONDS_MAX + SHARE_SECONDS_MAX
SHARES = 12
HANG_FACTOR = 6
"""After how many times its duration, and no less than the general limit, a test counts as hanging."""
HANG_SECONDS_MIN = 900
UNKNOWN_SECONDS = 20
"""The duration of a test that was not measured; such ones are share SHARES, which `--measure` makes known."""
TESTS_FILE = Path(__file__).with_name("tests.toml")


@dataclass(frozen=True, slots=True)
class Heavy:
    """What is known of the heavy tests."""

    first: tuple[str, ...] = ()
    """The list: tests, or functions with all their parameters."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of one test of each function, on two slow cores."""

    def seconds_of(self, test: str) -> float:
        """Return the estimated duration of a test."""
        return self.seconds.get(function_of(test), UNKNOWN_SECONDS)

    def first_of(self, tests: Iterable[str]) -> list[str]:
        """Return the tests of the list, in its order.

        Raises pytest.UsageError where an entry has no test.
        """
        tests = list(tests)
        chosen = {entry: [test for test in tests if entry in (test, function_of(test))] for entry in self.first}
        if missing := [entry for entry, found in chosen.items() if not found]:
            raise pytest.UsageError(f"no heavy test: {', '.join(missing)}")
        return [test for found in chosen.values() for test in found]

    def shares_of(self, tests: Iterable[str]) -> list[list[str]]:
        """Divide the tests that the list has not into SHARES of about the same duration, and those not measured.

        Each is in the order given.
        """
        tests = list(tests)
        rest = set(tests) - set(self.first_of(tests))
        unknown = {test for test in rest if function_of(test) not in self.seconds}
        shares: list[set[str]] = [*(set() for _ in range(SHARES)), unknown]
        sums = [0.0] * SHARES
        for test in sorted(rest - unknown, key=lambda test: (-self.seconds_of(test), test)):
            least = sums.index(min(sums))
            shares[least].add(test)
            sums[least] += self.seconds_of(test)
        return [[test for test in tests if test in share] for share in shares]


def function_of(test: str) -> str:
    """Return a test's name without its parameters."""
    return test.partition("[")[0]


def read_tests() -> Heavy:
    """Return what tests.toml says."""
    tables = tomllib.loads(TESTS_FILE.read_text())
    return Heavy(tuple(tables["first"]), tables["seconds"])


def share_of_commit() -> int:
    """Return the share of the commit that is checked out: the number of commits up to it, modulo SHARES."""
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True, check=True)
    return int(count.stdout) % SHARES


class Selection:
    """A pytest plugin that selects heavy tests as far as the time suffices, and prints a table of the durations."""

    def __init__(self, heavy: Heavy, *, lists: bool, shares: Iterable[int], seconds_max: float = SECONDS_MAX) -> None:
        self._heavy = heavy
        self._lists = lists
        self._shares = tuple(shares)
        self._end = time.monotonic() + seconds_max
        self.durations: dict[str, list[float]] = defaultdict(list)
        self._outcomes: dict[str, str] = {}
        self._unknown = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the selected tests, those of the list first, and shorten their time limits."""
        by_name = {item.nodeid: item for item in items}
        names = self._heavy.first_of(by_name) if self._lists else []
        shares = self._heavy.shares_of(by_name)
        names += [name for share in self._shares for name in shares[share]]
        self._unknown = len(shares[SHARES])
        for name in names:
            limit = max(HANG_SECONDS_MIN, HANG_FACTOR * self._heavy.seconds_of(name))
            by_name[name].add_marker(pytest.mark.timeout(limit), append=False)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in set(names)])
        items[:] = [by_name[name] for name in names]

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Return the selected tests and their time."""
        functions: dict[str, float] = defaultdict(float)
        for item in items:
            functions[function_of(item.nodeid)] += self._heavy.seconds_of(item.nodeid)
        shares = ",".join(map(str, self._shares))
        head = f"ci: tests={len(items)} seconds={sum(functions.values()):.0f} shares={shares} of={SHARES}"
        head += f" not_measured={self._unknown}"
        return [head, *(f"  runs {name} ({seconds:.0f} s)" for name, seconds in functions.items())]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that would end after the time limit."""
        left, needed = self._end - time.monotonic(), self._heavy.seconds_of(item.nodeid)
        if left < needed:
            pytest.skip(f"{left:.0f} s are left, and it takes {needed:.0f} s")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of one phase of a test."""
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.nodeid] = report.outcome
        if report.when == "call":
            self.durations[function_of(report.nodeid)].append(report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print each function with the outcomes and the seconds of its tests."""
        terminalreporter.section("heavy tests")
        functions: dict[str, list[str]] = defaultdict(list)
        for name, outcome in self._outcomes.items():
            functions[function_of(name)].append(outcome)
        for function, outcomes in functions.items():
            counts = " ".join(f"{outcome}={outcomes.count(outcome)}" for outcome in sorted(set(outcomes)))
            terminalreporter.write_line(f"{sum(self.durations[function]):7.1f} s  {function}  {counts}")
