"""What pytest does with a test that fails once and with one that hangs, by the project's own settings."""

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
HANGING_TWICE = """
import threading

def test_that_hangs_in_its_cleanup_too():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()
"""


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of one file by the project's settings but for these."""
    changed = [argument for option in options for argument in ("-o", option)]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *changed, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=file.parent)


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


def test_what_hangs_in_its_cleanup_too_ends_the_run_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(HANGING_TWICE)
    done = run(file, "timeout=1", "faulthandler_timeout=2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in test_that_hangs_in_its_cleanup_too" in done.stderr
