"""Schedules of the whole path: whatever the order of its steps and faults, nothing is lost and nothing is doubled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schedules.mutants import MUTANTS

SECONDS_MAX = 3_000
SCHEDULES_MAX = 600
"""Within so many a mutant has to be found."""


def run(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.schedules", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    print(done.stdout, done.stderr)
    return done


@pytest.mark.guarantee(0)
@pytest.mark.parametrize("count", [20, pytest.param(3_000, marks=pytest.mark.heavy)])
def test_no_schedule_loses_or_doubles_an_event(count: int) -> None:
    done = run("--count", str(count))
    assert done.returncode == 0
    assert f"schedules={count} " in done.stdout
    assert " wrong=0 " in done.stdout


@pytest.mark.parametrize("seed", [5_000_860, 20_001_248])
def test_a_schedule_that_has_found_a_fault_finds_none(seed: int) -> None:
    assert run("--first", str(seed), "--count", "1").returncode == 0


@pytest.mark.parametrize("seed", [13, 6])
def test_a_seed_repeats_its_schedule_to_the_last_step(tmp_path: Path, seed: int) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        trace = tmp_path / hash_seed
        assert run("--first", str(seed), "--trace", str(trace), hash_seed=hash_seed).returncode == 0
        traces.append(trace.read_text())
    assert traces[0] == traces[1]
    assert traces[0].count("\n") > 1_000


FOUND_SOON = {
    "abort-unnoticed": [pytest.mark.guarantee(4)],
    "end-sent-again": [pytest.mark.guarantee(4)],
    "fingerprint-forgotten": [],
    "first-part-acked": [pytest.mark.guarantee(1)],
    "middle-epochs-unknown": [pytest.mark.guarantee(4)],
}


@pytest.mark.heavy
@pytest.mark.parametrize(
    "mutant", [pytest.param(name, marks=FOUND_SOON.get(name, [pytest.mark.heavy])) for name in sorted(MUTANTS)]
)
def test_a_mutant_is_found(mutant: str) -> None:
    done = run("--count", str(SCHEDULES_MAX), "--mutant", mutant)
    assert done.returncode == 1
    assert f"{mutant}: found by schedule" in done.stdout
    assert f" --mutant {mutant} --trace " in done.stdout
