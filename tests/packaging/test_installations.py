"""`make install`: two at once, and one that is killed at any of its changes."""

from __future__ import annotations

import errno
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
from tests.support.changes import Fault
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
    killed = changes.run(("sh", "-c", script), folder, os.environ, tmp_path / "log", fault_at=3)
    assert (killed.status, killed.changes) == (-9, whole.changes[:3])
    assert [one.name for one in folder.iterdir()] == ["b"]


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_change_that_fails_is_not_made_and_the_command_sees_the_error(tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run = changes.run(("mkdir", f"{folder}/a", f"{folder}/b"), folder, os.environ, tmp_path / "log", 0, fault)
    assert (run.status, len(run.changes)) == (1, 2)
    assert [one.name for one in folder.iterdir()] == ["b"]
    assert os.strerror(getattr(errno, fault)) in (tmp_path / "log").read_text()


def test_a_change_that_cannot_lack_space_does_not_fail_for_want_of_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    run = changes.run(("chmod", "600", str(file)), tmp_path, os.environ, tmp_path / "log", 0, Fault.ENOSPC)
    assert (run.status, len(run.changes)) == (0, 1)


@pytest.mark.parametrize(
    "script",
    [
        "os.write(file, data)",
        "os.pwrite(file, data, 0)",
        "os.copy_file_range(os.open(source, os.O_RDONLY), file, len(data))",
    ],
)
def test_of_a_short_write_half_is_there_and_the_command_sees_the_count(tmp_path: Path, script: str) -> None:
    folder, source = tmp_path / "folder", tmp_path / "source"
    folder.mkdir()
    source.write_bytes(bytes(range(200)))
    code = (
        f"import os; source, data = {str(source)!r}, bytes(range(200))\n"
        f"file = os.open('{folder}/a', os.O_WRONLY | os.O_CREAT); print({script}, os.lseek(file, 0, os.SEEK_CUR))"
    )
    log = tmp_path / "log"
    run = changes.run((sys.executable, "-c", code), folder, os.environ, log, 1, Fault.SHORT)
    assert (run.status, len(run.changes)) == (0, 2)
    assert (folder / "a").read_bytes() == bytes(range(100))
    assert log.read_text().split() == ["100", "0" if "pwrite" in script else "100"]


def test_a_copy_that_fails_by_itself_is_left_to_the_command(tmp_path: Path) -> None:
    folder, source, log = tmp_path / "folder", tmp_path / "source", tmp_path / "log"
    folder.mkdir()
    source.write_bytes(bytes(200))
    code = (
        f"import os; file = os.open('{folder}/a', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        f"os.copy_file_range(os.open('{source}', os.O_RDONLY), file, 200)"
    )
    run = changes.run((sys.executable, "-c", code), folder, os.environ, log, 1, Fault.SHORT)
    assert (run.status, len(run.changes)) == (1, 2)
    assert os.strerror(errno.EBADF) in log.read_text()  # as of every file that is opened for appending


def test_the_changes_of_a_command_beside_another_count_and_fail_as_those_of_the_other(tmp_path: Path) -> None:
    folder, log = tmp_path / "folder", tmp_path / "log"
    folder.mkdir()
    os.mkfifo(tmp_path / "order")
    server = changes.start(("sh", "-c", f"while read name < {tmp_path}/order; do mkdir $name; done"), os.environ, log)
    client = ("sh", "-c", f"cd {folder}; mkdir a; echo {folder}/b > {tmp_path}/order; until [ -e b ]; do :; done")
    try:
        run = changes.run(client, folder, os.environ, log, beside=(server,))
        assert run.changes == (f"mkdir {folder}/a", f"mkdir {folder}/b")
        refused = ("sh", "-c", f"echo {folder}/c > {tmp_path}/order; until grep -q {folder}/c {log}; do :; done")
        run = changes.run(refused, folder, os.environ, log, 0, Fault.EIO, beside=(server,))
        assert (run.status, run.changes) == (0, (f"mkdir {folder}/c",))
        assert sorted(one.name for one in folder.iterdir()) == ["a", "b"]
    finally:
        assert server.kill() == -9


def test_a_command_beside_another_that_ends_is_an_error(tmp_path: Path) -> None:
    server = changes.start(("true",), os.environ, tmp_path / "log")
    with pytest.raises(RuntimeError, match="beside"):
        changes.run(("sleep", "60"), tmp_path, os.environ, tmp_path / "log", beside=(server,))
    assert server.kill() == 0


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", killed_installations.SCENARIOS)
@pytest.mark.parametrize("part", range(1, 5))
def test_whenever_an_installation_is_killed_the_next_one_is_complete_and_an_agent_is_in_place(
    scenario: str, part: int
) -> None:
    run_installations(scenario, part, 4, Fault.KILL)


@pytest.mark.heavy
@pytest.mark.parametrize("scenario", killed_installations.SCENARIOS)
@pytest.mark.parametrize(("fault", "parts"), [(Fault.EIO, 8), (Fault.ENOSPC, 8), (Fault.SHORT, 1)])
def test_whichever_change_of_an_installation_fails_it_reports_that_and_the_next_one_is_complete(
    scenario: str, fault: Fault, parts: int
) -> None:
    run_installations(scenario, 1, parts, fault)


def run_installations(scenario: str, part: int, parts: int, fault: Fault) -> None:
    shown = io.StringIO()
    with Display(Console(file=shown)) as display:
        counts, wrong = killed_installations.run(scenario, part, parts, display, fault)
    print(counts, file=sys.stderr)
    assert wrong == []
    assert f" of {counts['made']:,} done" in shown.getvalue()
