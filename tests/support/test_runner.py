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


def test_what_fails_once_fails_and_what_hangs_fails_under_its_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-o", "timeout=1", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
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
