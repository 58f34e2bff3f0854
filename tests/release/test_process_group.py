"""A command that takes too long ends with everything that it has started."""

import subprocess
from pathlib import Path

import pytest

from tests.release.process_group import run_group
from tests.support.waiting import wait_until


def test_the_children_of_a_command_that_takes_too_long_are_killed(tmp_path: Path) -> None:
    child = tmp_path / "child"
    script = f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"
    for seconds in (0.5, 5, 50):  # the child has to be there first, which takes long on a busy machine
        with pytest.raises(subprocess.TimeoutExpired):
            run_group(["sh", "-c", script], seconds)
        if child.exists():
            break
    pid = child.read_text().strip()
    wait_until(lambda: not _runs(pid), "the child is dead")


def test_the_output_and_the_status_of_a_command_that_ends_are_returned() -> None:
    done = run_group(["sh", "-c", "echo said; echo failed >&2; exit 3"], 60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\n", "failed\n")


def _runs(pid: str) -> bool:
    """Whether a process exists and is not a zombie, which waits for its parent only."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
