"""The whole agent on a disk that forgets what was not flushed: every acked event is there once after each cut."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_disk import small_disk

SECONDS_MAX = 3_000


@pytest.fixture(autouse=True)
def _mountable(tmp_path: Path) -> None:
    """Skip the tests where file systems cannot be mounted."""
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    with small_disk(tmp_path / "probe", 1):
        pass


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.crashes.power_cuts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done


@pytest.mark.parametrize(("lives", "cuts"), [(1, 4), pytest.param(4, 250, marks=pytest.mark.heavy)])
def test_no_power_cut_takes_an_acked_event_from_the_whole_agent(lives: int, cuts: int) -> None:
    done = run("--lives", str(lives), "--cuts", str(cuts))
    assert done.returncode == 0
    outcomes = json.loads(done.stdout)["cuts"]
    assert outcomes["whole"] > sum(outcomes.values()) / 2


@pytest.mark.heavy
def test_commits_that_do_not_wait_for_the_flush_are_revealed() -> None:
    done = run("--lives", "1", "--cuts", "20", "--seed", "1", "--mutant", "commits_without_flush")
    assert done.returncode == 1
    assert "is acked and not there" in done.stderr
