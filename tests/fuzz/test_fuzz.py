"""Inputs of any bytes break none of the laws of `tests.fuzz.targets`."""

import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.fuzz.targets import TARGETS
from tests.support.commands import run

CORPUS = Path(__file__).with_name("corpus")
SECONDS = 100


@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_inputs_break_no_law(target: str) -> None:
    inputs = sorted((CORPUS / target).iterdir())
    assert inputs
    for file in inputs:
        TARGETS[target](file.read_bytes())


@pytest.mark.heavy
@pytest.mark.guarantee(6)
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_that_reaches_other_code_breaks_a_law(target: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this machine")
    command = (sys.executable, "-m", "tests.fuzz", target, f"--seconds={SECONDS}", f"--found={tmp_path}")
    done = run(*command, cwd=ROOT, seconds_max=3 * SECONDS)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert " runs in " in done.stderr
    assert "cov: " in done.stderr
