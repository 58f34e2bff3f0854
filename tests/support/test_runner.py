"""Tests that fail once and tests that hang, under the project's pytest settings."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pathlib
import threading

def test_that_loses_an_event_in_its_first_run():
    seen = pathlib.Path(__file__).with_name("seen")
    stored = 2000 if seen.exists() else 1999
    seen.touch()
    assert stored == 2000, "not within 120 s: Timeout"

def test_that_hangs():
    threading.Event().wait()

def test_after_it():
    pass
"""
HANGING_FOR_EVER = """
import threading

def test_that_no_signal_ends():
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of one file with the project's settings, changed by `options`."""
    file.with_name("conftest.py").write_text('pytest_plugins = ["tests.support.hangs"]\n')
    changed = [argument for option in options for argument in ("-o", option)]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *changed, str(file)]
    # Wide lines, since a truncated summary shows no reason; without the caller's options.
    environment = {**os.environ, "COLUMNS": "300", "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=file.parent, env=environment
    )


def test_what_fails_once_fails_and_what_hangs_fails_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    done = run(file, "timeout=1")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    failed = [line.partition("::")[2] for line in lines if line.startswith("FAILED")]
    assert [line.partition(" - ")[0] for line in failed] == [
        "test_that_loses_an_event_in_its_first_run",
        "test_that_hangs",
    ]
    assert "Timeout (>1.0s)" in failed[1]
    assert "2 failed, 1 passed" in lines[-1]
    assert "threading.Event().wait()" in done.stdout


def test_what_no_signal_ends_ends_the_run_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(HANGING_FOR_EVER)
    done = run(file, "timeout=1", "faulthandler_timeout=3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in test_that_no_signal_ends" in done.stderr
