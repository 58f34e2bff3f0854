"""The tool that makes one change of a command fail, or kills it there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support import changes
from tests.support.changes import Fault

pytestmark = pytest.mark.skipif(not changes.is_supported(), reason="knows the system calls of x86-64 only")


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
