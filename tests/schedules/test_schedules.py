"""Schedules of the whole path: whatever the order of its steps and faults, nothing is lost and nothing is doubled."""

import sys
from pathlib import Path

import pytest

from tests.schedules.mutants import MUTANTS
from tests.support.commands import Completed, run

SECONDS_MAX = 3_000
SCHEDULES_MAX = 600
"""Within so many a mutant has to be found."""


def schedules(*arguments: str, hash_seed: str = "random") -> Completed:
    command = (sys.executable, "-m", "tests.schedules", *arguments)
    done = run(*command, environment={"PYTHONHASHSEED": hash_seed}, seconds_max=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("count", [20, pytest.param(3_000, marks=pytest.mark.heavy)])
def test_no_schedule_loses_or_doubles_an_event(count: int) -> None:
    done = schedules("--count", str(count))
    assert done.returncode == 0
    assert f"schedules={count} " in done.stdout
    assert " wrong=0 " in done.stdout


@pytest.mark.parametrize("seed", [5_000_860, 20_001_248])
def test_a_schedule_that_has_found_a_fault_finds_none(seed: int) -> None:
    assert schedules("--first", str(seed), "--count", "1").returncode == 0


@pytest.mark.parametrize("seed", [13, 6])
def test_a_seed_repeats_its_schedule_to_the_last_step(tmp_path: Path, seed: int) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        trace = tmp_path / hash_seed
        assert schedules("--first", str(seed), "--trace", str(trace), hash_seed=hash_seed).returncode == 0
        traces.append(trace.read_text())
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 1_000


@pytest.mark.guarantee(1, 4)
@pytest.mark.heavy
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_mutant_is_found(mutant: str) -> None:
    done = schedules("--count", str(SCHEDULES_MAX), "--mutant", mutant)
    assert done.returncode == 1
    assert f"{mutant}: found by schedule" in done.stdout
    assert f" --mutant {mutant} --trace " in done.stdout
