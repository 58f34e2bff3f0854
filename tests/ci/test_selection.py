"""CI's list of heavy tests names existing tests, fits into its time, and is printed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.ci.selection import SECONDS_MAX, SETUP_SECONDS, Selection, read_list
from tests.docs.pages import ROOT


def test_the_list_fits_into_its_time() -> None:
    assert sum(read_list().values()) + SETUP_SECONDS <= SECONDS_MAX


def test_the_command_finds_each_test_and_says_what_it_would_run_in_the_order_of_the_list() -> None:
    command = [sys.executable, "-m", "tests.ci", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = [line.removeprefix("  runs ").rpartition(" (")[0] for line in done.stdout.splitlines() if "  runs " in line]
    assert runs == list(read_list())


def test_an_entry_that_is_no_heavy_test_is_an_error(request: pytest.FixtureRequest) -> None:
    selection = Selection({"tests/some.py::test_that_is_not_heavy": 5})
    with pytest.raises(pytest.UsageError, match=r"no heavy test: tests/some.py::test_that_is_not_heavy"):
        selection.pytest_collection_modifyitems(request.config, [request.node])


def test_a_test_that_would_end_after_the_time_is_left_out(request: pytest.FixtureRequest) -> None:
    selection = Selection({request.node.nodeid: 180}, seconds_max=179)
    selection.pytest_collection_modifyitems(request.config, [request.node])
    with pytest.raises(pytest.skip.Exception, match=r"17[0-9] s are left, and it takes 180 s"):
        selection.pytest_runtest_setup(request.node)
