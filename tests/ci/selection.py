"""The heavy tests that CI runs after `make test`: a fixed list, the most valuable first, and a share of all others.

The share changes with each run, so that after SHARES runs in a row each heavy test has run (decision 27).
"""

import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.commands import output_of

LIST_SECONDS_MAX = 960
SHARE_SECONDS_MAX = 3_300
"""The sums of what each test takes on two slow cores, with the starts of Kafka, Spark and PostgreSQL."""
SECONDS_MAX = 2_460
"""The time limit of a run, which has two processes."""
SHARES = 12
LARGEST_GROUP = "tests/cloud/"
BUILD_SECONDS = 600
"""Of the packages or the release that the tests of a unit share."""
UNKNOWN_SECONDS = 120
"""The duration of a test that was not measured: `--measure` makes it known."""
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
        """Divide the tests that the list has not into SHARES of about the same duration.

        The largest group comes first, since one process runs the part of it that is in a share.
        """
        tests = list(tests)
        shares: list[set[str]] = [set() for _ in range(SHARES)]
        sums = [0.0] * SHARES
        units: dict[str, list[str]] = defaultdict(list)
        for test in sorted(set(tests) - set(self.first_of(tests))):
            units[unit_of(test)].append(test)
        seconds = {unit: sum(map(self.seconds_of, of)) + BUILD_SECONDS * (len(of) > 1) for unit, of in units.items()}
        for unit in sorted(units, key=lambda unit: (not unit.startswith(LARGEST_GROUP), -seconds[unit], unit)):
            least = sums.index(min(sums))
            shares[least].update(units[unit])
            sums[least] += seconds[unit]
        return [[test for test in tests if test in share] for share in shares]


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


def share_of_run() -> int:
    """Return the share of this run: its number by GitHub, elsewhere the number of commits, modulo SHARES."""
    return int(os.environ.get("GITHUB_RUN_NUMBER") or output_of("git", "rev-list", "--count", "HEAD")) % SHARES


def write_seconds(seconds: Mapping[str, float]) -> None:
    head = TESTS_FILE.read_text().partition("[seconds]\n")[0]
    rows = "".join(f'"{name}" = {value:g}\n' for name, value in sorted(seconds.items()))
    TESTS_FILE.write_text(f"{head}[seconds]\n{rows}")
