"""`make install`: two at once, and one that is killed at any of its changes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from simulators.display import Display
from tests.packaging import killed_installations
from tests.packaging.roots import CHECKOUT
from tests.support import changes
from tests.support.waiting import wait_until

INSTALL = ("sh", str(CHECKOUT / "packaging" / "install.sh"))
pytestmark = pytest.mark.skipif(not changes.is_supported(), reason="knows the system calls of x86-64 only")


def test_of_two_installations_at_once_the_second_changes_nothing(tmp_path: Path) -> None:
    gate, arrived = tmp_path / "gate", tmp_path / "arrived"
    os.mkfifo(gate)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {arrived}\nread line < {gate}\nexit 1\n")
    python.chmod(0o755)
    environment = {**os.environ, "DESTDIR": str(tmp_path / "root"), "PYTHON": str(python)}
    with subprocess.Popen(INSTALL, env=environment, stderr=subprocess.DEVNULL):
        wait_until(arrived.exists, "the first installation works")
        before = sorted((tmp_path / "root").rglob("*"))
        second = subprocess.run(INSTALL, env=environment, capture_output=True, text=True, check=False, timeout=60)
        after = sorted((tmp_path / "root").rglob("*"))
        gate.write_text("go\n")
    assert second.returncode == 1
    assert "another installation" in second.stderr
    assert before == after
    arrived.unlink()
    with subprocess.Popen(INSTALL, env=environment, stderr=subprocess.DEVNULL):
        wait_until(arrived.exists, "a later installation works")
        gate.write_text("go\n")


def test_a_killed_command_has_made_the_changes_before_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    script = f"cd {folder}; echo 1 > a; mv a b; mkdir c; ln -s x c/l; rm b; echo 2 > {tmp_path}/elsewhere"
    whole = changes.run(("sh", "-c", script), folder, os.environ, tmp_path / "log")
    names = [one.partition(" ")[0] for one in whole.changes]
    assert names == ["openat", "write", "renameat2", "mkdir", "symlinkat", "unlinkat"]
    assert whole.status == 0
    (folder / "c" / "l").unlink()
    (folder / "c").rmdir()
    killed = changes.run(("sh", "-c", script), folder, os.environ, tmp_path / "log", kill_at=3)
    assert (killed.status, killed.changes) == (-9, whole.changes[:3])
    assert [one.name for one in folder.iterdir()] == ["b"]


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", killed_installations.SCENARIOS)
@pytest.mark.parametrize("part", range(1, 5))
def test_whenever_an_installation_is_killed_the_next_one_is_complete_and_an_agent_is_in_place(
    scenario: str, part: int
) -> None:
    shown = io.StringIO()
    with Display(Console(file=shown)) as display:
        counts, wrong = killed_installations.run(scenario, part, 4, display)
    print(counts, file=sys.stderr)
    assert wrong == []
    assert f" of {counts['killed']:,} kills made" in shown.getvalue()
