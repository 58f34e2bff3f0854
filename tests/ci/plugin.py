"""A plugin that selects heavy tests, the same in all processes of pytest-xdist."""

import math
import time
from collections import defaultdict

import pytest

from tests.ci.selection import SHARES, Heavy, function_of, read_tests, write_seconds

HANG_FACTOR = 6
"""After how many times its duration, and no less than the general limit, a test counts as hanging."""
HANG_SECONDS_MIN = 900


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `python -m tests.ci` gives to all processes."""
    parser.addoption("--ci-list", action="store_true", help="the fixed list")
    parser.addoption("--ci-shares", default="", help="shares, separated by commas")
    parser.addoption(
        "--ci-end", type=float, default=math.inf, help="when all shall have ended, in seconds of Unix time"
    )
    parser.addoption("--ci-measure", action="store_true", help="write the durations of what has passed into tests.toml")


def pytest_configure(config: pytest.Config) -> None:
    """Select the tests that the options name."""
    shares = tuple(map(int, filter(None, config.getoption("--ci-shares").split(","))))
    selection = Selection(
        read_tests(), lists=config.getoption("--ci-list"), shares=shares, end=config.getoption("--ci-end")
    )
    config.pluginmanager.register(selection, Selection.__name__)


class Selection:
    """Selects heavy tests as far as the time suffices."""

    def __init__(self, heavy: Heavy, *, lists: bool, shares: tuple[int, ...], end: float) -> None:
        self._heavy = heavy
        self._lists = lists
        self._shares = shares
        self._end = end
        self._starts: dict[str, float] = {}
        self._durations: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the selected tests, those of the list first, and shorten their time limits."""
        by_name = {item.nodeid: item for item in items}
        names = self._heavy.first_of(by_name) if self._lists else []
        shares = self._heavy.shares_of(by_name)
        names += [name for share in self._shares for name in shares[share]]
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
        return [head, *(f"  runs {name} ({seconds:.0f} s)" for name, seconds in functions.items())]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that would end after the time limit."""
        left, needed = self._end - time.time(), self._heavy.seconds_of(item.nodeid)
        if left < needed:
            pytest.skip(f"{left:.0f} s are left, and it takes {needed:.0f} s")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test and what it starts have taken."""
        if report.passed and report.when == "setup":
            self._starts[report.nodeid] = report.duration
        if report.passed and report.when == "call":
            seconds = self._starts.get(report.nodeid, 0.0) + report.duration
            self._durations[function_of(report.nodeid)].append(seconds)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the durations of what has passed into tests.toml, if asked."""
        if session.config.getoption("--ci-measure") and not hasattr(session.config, "workerinput"):
            measured = {name: max(1, round(sum(each) / len(each))) for name, each in self._durations.items()}
            write_seconds({**self._heavy.seconds, **measured})
