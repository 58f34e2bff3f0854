"""The figures and the chart of `compare`, and that the patches match the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulators.compare.command import main
from simulators.compare.picture import draw
from simulators.compare.variants import VARIANTS, Outcome, outcome
from simulators.oracle.verdict import Verdict
from simulators.run import clock_patch
from tests.simulators import mutants
from tests.simulators.test_mutants import MUTANTS

SECONDS_MAX = 120
PATCHES = sorted(
    {patch for variant in VARIANTS for patch in (*variant.overrides.agent_patches, *variant.overrides.job_patches)}
)


def _apply(patch: str) -> subprocess.CompletedProcess[str]:
    module, function = patch.split(":")
    script = f"import {module} as patches; patches.{function}()"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )


@pytest.mark.parametrize("patch", [*PATCHES, *(f"tests.simulators.mutants:{name}" for name in MUTANTS)])
def test_a_patch_finds_what_it_exchanges(patch: str) -> None:
    done = _apply(patch)
    assert done.returncode == 0, done.stderr


def test_every_mutant_is_run() -> None:
    made = {name for name, one in vars(mutants).items() if callable(one) and one.__module__ == mutants.__name__}
    assert made == MUTANTS.keys()


def test_the_clock_of_the_agent_alone_is_shifted(tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("-259200000\n")
    script = (
        "import time, simulators.run.clock_patch as patch; patch.install(); from agent.clock import SystemClock;"
        "print(round((SystemClock().wall_ms() / 1000 - time.time()) / 86400))"
    )
    environment = {clock_patch.VARIABLE: str(tmp_path / "clock"), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    )
    assert done.stdout.strip() == "-3"


def test_a_variant_is_compared_by_what_its_verdict_counts(tmp_path: Path) -> None:
    verdict = Verdict(
        events=9, acked=9, refused=0, given_up=0, transmissions=20, rows=11, records=15, repeats=2, doubled=2
    )
    outcomes = [outcome(variant, verdict) for variant in VARIANTS]
    assert outcomes[0] == Outcome("at-least-once", "the default mode", 9, 20, 9, 15, 2, 11, 0, 2)
    draw(outcomes, tmp_path / "compare.svg")
    picture = (tmp_path / "compare.svg").read_text()
    assert all(variant.name in picture for variant in VARIANTS)
    assert "doubled in the table" in picture


@pytest.mark.parametrize("wrong", [["lossy"], ["layers", "--only", "nothing"], []])
def test_wrong_usage_is_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(wrong, "oncegate-sim compare")
    assert ended.value.code == 2
