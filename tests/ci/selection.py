"""The heavy tests that CI runs after `make test`: a fixed list, the most valuable first."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

SECONDS_MAX = 2_700
"""Time limit of the whole list on two slow cores."""
SETUP_SECONDS = 180
"""The time of the list besides its tests: collecting, and the starts of Kafka, Spark and PostgreSQL."""
HANG_FACTOR = 6
"""After how many times its duration, and no less than the general limit, a test counts as hanging."""
HANG_SECONDS_MIN = 300
LIST_FILE = Path(__file__).with_name("tests.toml")


def read_list() -> dict[str, int]:
    """Return the seconds of each entry, in the order of the list: a test, or a function with all its parameters."""
    return dict(tomllib.loads(LIST_FILE.read_text())["seconds"])


def entry_of(test: str, entries: Mapping[str, int]) -> str | None:
    """Return the entry that a test belongs to; None where the list does not have it."""
    return next((entry for entry in (test, test.partition("[")[0]) if entry in entries), None)


class Selection:
    """A pytest plugin that selects the tests of the list, in its order, as far as the time suffices."""

    def __init__(self, seconds: Mapping[str, int], seconds_max: float = SECONDS_MAX) -> None:
        self._seconds = seconds
        self._seconds_max = seconds_max
        self._end = time.monotonic() + seconds_max
        self._each: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the items of the list, in its order, and shorten their time limits."""
        chosen: dict[str, list[pytest.Item]] = {entry: [] for entry in self._seconds}
        for item in items:
            entry = entry_of(item.nodeid, self._seconds)
            if entry is not None:
                chosen[entry].append(item)
        if missing := [entry for entry, tests in chosen.items() if not tests]:
            raise pytest.UsageError(f"no heavy test: {', '.join(missing)}")
        kept = [item for entry in chosen.values() for item in entry]
        for entry, tests in chosen.items():
            self._each.update((test.nodeid, self._seconds[entry] / len(tests)) for test in tests)
        for item in kept:
            limit = max(HANG_SECONDS_MIN, HANG_FACTOR * self._each[item.nodeid])
            item.add_marker(pytest.mark.timeout(limit), append=False)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._each])
        items[:] = kept

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Return the selected tests."""
        total = sum(self._each.values())
        head = f"ci: tests={len(items)} seconds={total:.0f} seconds_max={self._seconds_max:.0f}"
        return [head, *(f"  runs {entry} ({seconds} s)" for entry, seconds in self._seconds.items())]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that would end after the time limit of the list."""
        left = self._end - time.monotonic()
        if left < self._each[item.nodeid]:
            pytest.skip(f"{left:.0f} s are left, and it takes {self._each[item.nodeid]:.0f} s")
