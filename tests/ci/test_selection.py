"""CI's heavy tests exist, fit into their time, each runs within SHARES commits, and the command says which run."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ci.selection import (
    LIST_SECONDS_MAX,
    SHARE_SECONDS_MAX,
    SHARES,
    Heavy,
    function_of,
    read_tests,
)
from tests.docs.pages import ROOT


@pytest.mark.heavy
def test_the_list_and_each_share_exist_fit_into_their_time_and_are_shown() -> None:
    command = [sys.executable, "-m", "tests.ci", "--list", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    tests = [line for line in lines if line.startswith("tests/") and "::" in line]
    runs = [line.removeprefix("  runs ").rpartition(" (")[0] for line in lines if "  runs " in line]
    heavy = read_tests()
    first = heavy.first_of(tests)
    assert runs[: len(set(map(function_of, first)))] == list(dict.fromkeys(map(function_of, first)))
    assert set(heavy.seconds) <= set(runs)
    assert sum(map(heavy.seconds_of, first)) <= LIST_SECONDS_MAX
    for share in heavy.shares_of(tests)[:SHARES]:
        assert sum(map(heavy.seconds_of, share)) <= SHARE_SECONDS_MAX


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(1, 600), max_size=40),
    st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=60),
    st.data(),
)
def test_each_test_stands_in_the_list_or_in_one_share(
    seconds: dict[str, float], tests: list[str], data: st.DataObject
) -> None:
    heavy = Heavy(tuple(data.draw(st.lists(st.sampled_from(tests), unique=True))) if tests else (), seconds)
    shares = heavy.shares_of(tests)
    assert len(shares) == SHARES + 1
    assert all((function_of(test) in seconds) is (share is not shares[-1]) for share in shares for test in share)
    assert sorted([*heavy.first_of(tests), *(test for share in shares for test in share)]) == sorted(tests)
