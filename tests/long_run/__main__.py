"""Run this turn's heavy tests among those that docs/guarantees.md names: `python -m tests.long_run [--plan]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import pytest

from tests.long_run.plan import TURN_SECONDS_MAX, estimate, read_seconds, turn_of, turns
from tests.support.collected import ROOT
from tests.support.guarantees import read_named

HANG_FACTOR = 3
"""After how many times its estimate, and no less than the general limit, a test counts as hanging."""
HANG_SECONDS_MIN = 300
SECONDS_PER_DAY = 86_400


class Turn:
    """Leaves to pytest the tests of one turn, and of those what there is time for."""

    def __init__(self, number: int, seconds_max: float = TURN_SECONDS_MAX) -> None:
        self._number = number
        self._end = time.monotonic() + seconds_max
        self._costs: dict[str, int] = {}
        self._seconds = read_seconds()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the items of this turn, in its order, and shorten their time limits."""
        by_id = {item.nodeid: item for item in items}
        self._costs = {test: estimate(test, self._seconds) for test in by_id}
        mine = [by_id[test] for test in turn_of(self._number, self._costs)]
        for item in mine:
            limit = max(HANG_SECONDS_MIN, HANG_FACTOR * self._costs[item.nodeid])
            item.add_marker(pytest.mark.timeout(limit), append=False)
        config.hook.pytest_deselected(items=[item for item in items if item not in mine])
        items[:] = mine

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Return what runs, and what is left to which turn."""
        if not self._costs:
            return []
        all_turns = turns(self._costs)
        number = self._number % len(all_turns)
        head = f"long run: turn={number + 1} of={len(all_turns)} tests={len(items)} seconds_max={TURN_SECONDS_MAX}"
        lines = [head, *(f"  runs {item.nodeid} ({self._costs[item.nodeid]} s)" for item in items)]
        for other in range(1, len(all_turns)):
            place = (number + other) % len(all_turns)
            lines += [f"  left to turn {place + 1}: {test}" for test in all_turns[place]]
        return lines

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that would end after the turn's end."""
        left = self._end - time.monotonic()
        if left < self._costs[item.nodeid]:
            pytest.skip(f"this turn has {left:.0f} s left, and it takes {self._costs[item.nodeid]} s")


def turn_now() -> int:
    """Return the number of commits, which each change of the project raises; without a history, the number of days."""
    if _git("rev-parse", "--is-shallow-repository") == "false":
        return int(_git("rev-list", "--count", "HEAD"))
    return int(time.time()) // SECONDS_PER_DAY


def _git(*arguments: str) -> str:
    """Return what git says of the project; nothing where it is not under git."""
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=ROOT).stdout.strip()
    except FileNotFoundError:
        return ""


def main() -> int:
    """Run or show one turn, and return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.long_run", description=__doc__)
    parser.add_argument("--plan", action="store_true", help="show what would run, and run nothing")
    parser.add_argument("--turn", type=int, help="the turn's number; without it the number of commits")
    parser.add_argument("names", nargs="*", help="tests instead of all that the guarantees name")
    options = parser.parse_args()
    number = turn_now() if options.turn is None else options.turn - 1
    names = options.names or sorted({one.name for one in read_named()})
    arguments = ["-m", "heavy", "-o", f"faulthandler_timeout={TURN_SECONDS_MAX}", "--durations=0", *names]
    return pytest.main(["--collect-only", "-q", *arguments] if options.plan else arguments, plugins=[Turn(number)])


if __name__ == "__main__":
    sys.exit(main())
