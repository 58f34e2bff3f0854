import subprocess
import sys
from pathlib import Path

from simulators.services import session
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


def test_terminate_kills_what_does_not_end_in_time(tmp_path: Path) -> None:
    process = shell(FAMILY, tmp_path)
    process.start()
    process.wait_for_log("started", 60)

    assert process.terminate(seconds=0.2) == -9
    assert session.members(process.pid) == []


def test_a_second_start_reads_its_own_log_only(tmp_path: Path) -> None:
    process = shell("echo $$", tmp_path)
    process.start()
    process.wait(60)
    first = process.log()

    process.start()
    process.wait(60)

    assert process.log() != first
    assert process.command.log_file.read_text() == first + process.log()


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
