"""The turns have all heavy tests of the guarantees, each within the time, and say what they leave."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.long_run.__main__ import Turn
from tests.long_run.plan import (
    SETUP_SECONDS,
    TURN_SECONDS_MAX,
    UNKNOWN_SECONDS,
    estimate,
    read_seconds,
    turn_of,
    turns,
)
from tests.support.collected import COLLECTED, ROOT
from tests.support.guarantees import read_named

CUTS = "tests/agent/store/faults/test_power_cuts.py::test_no_power_cut_of_ten_thousand_takes_an_acked_event"
TURNS_MAX = 12
"""After how many turns each heavy test of the guarantees has run."""
ROOM = TURN_SECONDS_MAX - SETUP_SECONDS
COSTS = st.dictionaries(st.text("abc::[]", min_size=1), st.integers(1, ROOM), max_size=80)


@given(COSTS, st.integers(0, 10_000))
def test_as_many_turns_as_there_are_have_each_test_once_and_none_is_too_long(costs: dict[str, int], first: int) -> None:
    count = len(turns(costs))
    shown = [turn_of(first + number, costs) for number in range(count)]
    assert sorted(test for turn in shown for test in turn) == sorted(costs)
    assert all(sum(costs[test] for test in turn) <= ROOM for turn in shown)
    assert count <= 1 + 2 * sum(costs.values()) / ROOM


@given(COSTS.filter(bool), st.integers(0, 1_000))
def test_each_test_of_a_turn_is_its_first_in_some_round(costs: dict[str, int], number: int) -> None:
    count, tests = len(turns(costs)), turn_of(number, costs)
    assert {turn_of(number + count * turn, costs)[0] for turn in range(len(tests))} == set(tests)


def test_a_test_that_no_turn_has_room_for_is_named() -> None:
    with pytest.raises(ValueError, match="too_long takes 1501 s"):
        turns({"too_long": 1_501, "short": 1})


def test_a_test_is_estimated_by_its_id_its_function_or_the_general_figure() -> None:
    seconds = {"f.py::a": 10, "f.py::a[2]": 20}
    tests = ("f.py::a[1]", "f.py::a[2]", "f.py::b[1]")
    assert [estimate(test, seconds) for test in tests] == [10, 20, UNKNOWN_SECONDS]


def test_each_measured_test_is_one_that_the_guarantees_name() -> None:
    assert {test.partition("[")[0] for test in read_seconds()} <= {one.name for one in read_named()}


def test_what_the_guarantees_name_fits_into_turns(request: pytest.FixtureRequest) -> None:
    named = {one.name for one in read_named()}
    there = [test.id for test in request.config.stash[COLLECTED] if test.heavy and test.name in named]
    made = turns({test: estimate(test, read_seconds()) for test in there})
    assert sorted(test for turn in made for test in turn) == sorted(there)
    assert len(made) <= TURNS_MAX


def test_the_plan_shows_what_runs_and_what_is_left() -> None:
    shown = plan("--turn", "1", CUTS).splitlines()
    assert shown[0].startswith("long run: turn=1 of=")
    runs = [line.split()[1] for line in shown if line.startswith("  runs ")]
    left = [line.split()[-1] for line in shown if line.startswith("  left to turn ")]
    assert sorted(runs + left) == sorted(f"{CUTS}[{number}]" for number in range(20))
    assert sorted(line for line in shown if line.startswith("tests/")) == sorted(runs)


def plan(*options: str) -> str:
    command = [sys.executable, "-m", "tests.long_run", "--plan", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_test_that_would_end_after_its_turn_is_left_out(request: pytest.FixtureRequest) -> None:
    turn = Turn(0, seconds_max=UNKNOWN_SECONDS - 1)
    turn.pytest_collection_modifyitems(request.config, [request.node])
    with pytest.raises(pytest.skip.Exception, match=r"this turn has 17[0-9] s left, and it takes 180 s"):
        turn.pytest_runtest_setup(request.node)
