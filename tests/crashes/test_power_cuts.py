"""The whole agent on a disk that forgets what was not flushed: every acked event is there once after each cut."""

import json

import pytest

from tests.crashes.running import run

pytestmark = pytest.mark.usefixtures("mountable")


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("lanes", [(), ("--lanes",)])
@pytest.mark.parametrize(("lives", "cuts"), [(1, 4), pytest.param(4, 250, marks=pytest.mark.heavy)])
def test_no_power_cut_takes_an_acked_event_from_the_whole_agent(lives: int, cuts: int, lanes: tuple[str, ...]) -> None:
    done = run("power_cuts", "--lives", str(lives), "--cuts", str(cuts), *lanes)
    assert done.returncode == 0
    outcomes = json.loads(done.stdout)["cuts"]
    assert outcomes["whole"] > sum(outcomes.values()) / 2


@pytest.mark.guarantee(1)
@pytest.mark.heavy
def test_commits_that_do_not_wait_for_the_flush_are_revealed() -> None:
    done = run("power_cuts", "--lives", "1", "--cuts", "20", "--seed", "1", "--mutant", "commits_without_flush")
    assert done.returncode == 1
    assert "is acked and not there" in done.stderr
