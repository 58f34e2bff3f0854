"""CI's heavy tests exist, fit into their time, and the command says which run."""

import sys
from collections import defaultdict

import pytest

from tests.ci.selection import (
    BUILD_SECONDS,
    LIST_SECONDS_MAX,
    SECONDS_MAX,
    SHARE_SECONDS_MAX,
    SHARES,
    function_of,
    read_tests,
)
from tests.docs.pages import ROOT
from tests.support.commands import output_of
from tests.support.scheduling import group_of


@pytest.mark.heavy
def test_the_list_and_each_share_exist_fit_into_their_time_and_are_shown() -> None:
    lines = output_of(sys.executable, "-m", "tests.ci", "--list", "--all", cwd=ROOT).splitlines()
    tests = [line for line in lines if line.startswith("tests/") and "::" in line]
    runs = [line.removeprefix("  runs ").rpartition(" (")[0] for line in lines if "  runs " in line]
    heavy = read_tests()
    first = heavy.first_of(tests)
    assert runs[: len(set(map(function_of, first)))] == list(dict.fromkeys(map(function_of, first)))
    assert set(heavy.seconds) <= set(runs)
    assert sum(map(heavy.seconds_of, first)) <= LIST_SECONDS_MAX
    shares = heavy.shares_of(tests)
    assert len(shares) == SHARES
    assert {*first, *(test for share in shares for test in share)} == set(tests)
    for share in shares:
        assert sum(map(heavy.seconds_of, share)) <= SHARE_SECONDS_MAX
        groups: dict[str, float] = defaultdict(float)  # each runs in one process
        for test in [*first, *share]:
            groups[group_of(test)] += heavy.seconds_of(test)
        assert max(groups.values()) <= SECONDS_MAX - BUILD_SECONDS
