"""Tests that fail once and tests that hang, under the project's pytest settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
SWALLOWED = """
import asyncio
import threading

async def test_that_hangs_in_a_callback():
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(threading.Event().wait)
    loop.call_later(0, over.set_result, None)
    await over

async def test_that_hangs_for_ever_after_a_callback():
    loop = asyncio.get_running_loop()
    loop.call_soon(threading.Event().wait)
    await loop.create_future()

def test_after_them():
    pass
"""
PROPERTY = """
import threading

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@settings(deadline=None, database=None)
@given(st.integers())
def test_that_hangs_with_some_examples(number):
    if number > 10:
        threading.Event().wait()

class Machine(RuleBasedStateMachine):
    @rule()
    def hang(self):
        threading.Event().wait()

TestThatHangsInAStep = Machine.TestCase

def test_after_them():
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


@pytest.mark.heavy
def test_a_hang_in_a_callback_of_asyncio_fails_its_test_though_the_loop_takes_the_error(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(SWALLOWED)
    done = run(file, "timeout=1")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line.partition("::")[2] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert [line.partition(" - ")[0] for line in failed] == [
        "test_that_hangs_in_a_callback",
        "test_that_hangs_for_ever_after_a_callback",
    ]
    assert done.stdout.count("Timeout (>1.0s), and the error was taken") >= 1
    assert "2 failed, 1 passed" in done.stdout.splitlines()[-1]


@pytest.mark.heavy
def test_an_example_that_hangs_fails_its_property_under_its_name_and_is_not_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(PROPERTY)
    done = run(file, "timeout=1", "faulthandler_timeout=3")  # tried again, it would outlast both
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line.partition("::")[2] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert [line.partition(" - ")[0] for line in failed] == [
        "test_that_hangs_with_some_examples",
        "TestThatHangsInAStep::runTest",
    ]
    assert done.stdout.count("HungExampleError: Timeout (>1.0s)") >= 2
    assert "2 failed, 1 passed" in done.stdout.splitlines()[-1]


def test_what_no_signal_ends_ends_the_run_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(HANGING_FOR_EVER)
    done = run(file, "timeout=1", "faulthandler_timeout=3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in test_that_no_signal_ends" in done.stderr
