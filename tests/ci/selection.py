"""The heavy tests that CI runs after `make test`: a fixed list, the most valuable first, and a share of all others.

The share changes with each commit: after SHARES commits each heavy test has run whose duration is known (decision 27).
"""

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.commands import output_of

LIST_SECONDS_MAX = 960
SHARE_SECONDS_MAX = 3_000
"""The sums of what each test takes on two slow cores, with the starts of Kafka, Spark and PostgreSQL."""
SECONDS_MAX = 2_460
"""The time limit of a run, which has two processes."""
SHARES = 12
BUILD_SECONDS = 600
"""Of the packages or the release that the tests of a unit share."""
UNKNOWN_SECONDS = 30
"""The duration of a test that was not measured; such ones are share SHARES, which `--measure` makes known."""
TESTS_FILE = Path(__file__).with_name("tests.toml")


@dataclass(frozen=True, slots=True)
class Heavy:
    first: tuple[str, ...] = ()
    """The list: tests, or functions with all their parameters."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of one test of each function, on two slow cores."""

    def seconds_of(self, test: str) -> float:
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
        """Divide the tests that the list has not into SHARES of about the same duration, and those not measured."""
        tests = list(tests)
        shares: list[set[str]] = [set() for _ in range(SHARES)]
        sums = [0.0] * SHARES
        rest = set(tests) - set(self.first_of(tests))
        unknown = {test for test in rest if function_of(test) not in self.seconds}
        units: dict[str, list[str]] = defaultdict(list)
        for test in sorted(rest - unknown):
            units[unit_of(test)].append(test)
        seconds = {unit: sum(map(self.seconds_of, of)) + BUILD_SECONDS * (len(of) > 1) for unit, of in units.items()}
        for unit in sorted(units, key=lambda unit: (-seconds[unit], unit)):
            least = sums.index(min(sums))
            shares[least].update(units[unit])
            sums[least] += seconds[unit]
        return [[test for test in tests if test in share] for share in [*shares, unknown]]


def function_of(test: str) -> str:
    """Return a test's name without its parameters."""
    return test.partition("[")[0]


def unit_of(test: str) -> str:
    """Return the unit that runs in one share: all tests of a package or a release, which takes minutes to build."""
    file, _, name = test.partition("::")
    if file.startswith("tests/packaging/"):
        return name.partition("[")[2].rstrip("]").partition("-")[0] or test
    return file if file == "tests/release/test_release.py" else test


def read_tests() -> Heavy:
    tables = tomllib.loads(TESTS_FILE.read_text())
    return Heavy(tuple(tables["first"]), tables["seconds"])


def share_of_commit() -> int:
    """Return the share of the commit that is checked out: the number of commits up to it, modulo SHARES."""
    return int(output_of("git", "rev-list", "--count", "HEAD")) % SHARES


def write_seconds(seconds: Mapping[str, float]) -> None:
    head = TESTS_FILE.read_text().partition("[seconds]\n")[0]
    rows = "".join(f'"{name}" = {value:g}\n' for name, value in sorted(seconds.items()))
    TESTS_FILE.write_text(f"{head}[seconds]\n{rows}")
