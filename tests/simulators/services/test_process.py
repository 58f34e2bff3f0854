"""A child process can be awaited and ended, and never outlives its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulators.services import session
from simulators.services.error import ServiceError, ServiceTimeoutError
from simulators.services.process import Command, Process
from tests.support.waiting import wait_until

# A child with a child of its own, which ignores SIGTERM.
FAMILY = "trap '' TERM; sleep 1000 & echo started; wait; wait"
PARENT = """
import sys, threading
from pathlib import Path
from simulators.services.process import Command, Process
process = Process(Command("child", ("/bin/sh", "-c", sys.argv[1]), Path(sys.argv[2])))
starter = threading.Thread(target=process.start)  # ends at once: a thread's end must not end the child
starter.start()
starter.join()
process.wait_for_log("started", 60)
print(process.pid, flush=True)
sys.stdin.read()
"""


def shell(script: str, folder: Path) -> Process:
    return Process(Command("child", ("/bin/sh", "-c", script), folder / "child.log"))


def test_kill_leaves_no_child_of_the_child(tmp_path: Path) -> None:
    process = shell(FAMILY, tmp_path)
    process.start()
    process.wait_for_log("started", 60)

    process.kill()

    assert not process.alive
    assert process.exit_status == -9
    assert session.members(process.pid) == []


def test_terminate_kills_what_does_not_end_in_time(tmp_path: Path) -> None:
    process = shell(FAMILY, tmp_path)
    process.start()
    process.wait_for_log("started", 60)

    assert process.terminate(seconds=0.2) == -9
    assert session.members(process.pid) == []


def test_terminate_lets_a_child_finish(tmp_path: Path) -> None:
    process = shell("trap 'echo finished; exit 7' TERM; echo started; while :; do sleep 0.05; done", tmp_path)
    process.start()
    process.wait_for_log("started", 60)

    assert process.terminate() == 7
    assert "finished" in process.log()


def test_a_child_that_stands_still_can_be_ended(tmp_path: Path) -> None:
    process = shell("trap 'exit 7' TERM; echo started; while :; do sleep 0.05; done", tmp_path)
    process.start()
    process.wait_for_log("started", 60)

    process.pause()

    assert process.alive
    assert process.terminate() == 7


def test_none_of_the_threads_of_a_paused_child_runs(tmp_path: Path) -> None:
    busy = "import threading; [threading.Thread(target=lambda: sum(iter(lambda: 1, 0))).start() for _ in range(4)]"
    process = Process(Command("busy", (sys.executable, "-c", f"{busy}; print('busy', flush=True)"), tmp_path / "log"))
    process.start()
    process.wait_for_log("busy", 60)
    try:
        for _ in range(100):
            process.pause()
            tasks = Path(f"/proc/{process.pid}/task").glob("*/stat")
            assert {task.read_text().rpartition(")")[2].split()[0] for task in tasks} == {"T"}
            process.resume()
    finally:
        process.kill()


def test_an_early_end_shows_the_end_of_the_log(tmp_path: Path) -> None:
    process = shell("echo the reason; exit 3", tmp_path)
    process.start()

    with pytest.raises(ServiceError, match=r"(?s)ended with status 3 before 'ready' in the log.*the reason"):
        process.wait_for_log("ready", 60)
    process.kill()


def test_what_does_not_happen_in_time_is_named(tmp_path: Path) -> None:
    with (
        shell("sleep 1000", tmp_path) as process,
        pytest.raises(ServiceTimeoutError, match=r"not within 0\.05 s: dawn"),
    ):
        process.wait_until(lambda: False, "dawn", 0.05)


def test_a_second_start_reads_its_own_log_only(tmp_path: Path) -> None:
    process = shell("echo $$", tmp_path)
    process.start()
    process.wait(60)
    first = process.log()

    process.start()
    process.wait(60)

    assert process.log() != first
    assert process.command.log_file.read_text() == first + process.log()


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    process = Process(Command("child", (str(tmp_path / "nothing"),), tmp_path / "child.log"))

    with pytest.raises(ServiceError, match="cannot start"):
        process.start()


def test_nothing_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, FAMILY, str(tmp_path / "child.log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent:
        child = int(parent.stdout.readline())
        assert len(session.members(child)) == 2

        parent.kill()

    wait_until(lambda: not session.members(child), "the child's session is empty")
