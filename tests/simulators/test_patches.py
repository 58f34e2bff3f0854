"""The patches match the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.layers.__main__ import VARIANTS
from simulators import launch
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
        "import time, simulators.launch as launch; launch.shift_clock(); from agent.clock import SystemClock;"
        "print(round((SystemClock().wall_ms() / 1000 - time.time()) / 86400))"
    )
    environment = {launch.CLOCK_VARIABLE: str(tmp_path / "clock"), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=SECONDS_MAX
    )
    assert done.stdout.strip() == "-3"
