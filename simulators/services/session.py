"""Find and signal all processes of a session, in any process groups."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from simulators.services.error import ServiceTimeoutError

POLL_SECONDS = 0.01
SIGNAL_SECONDS_MAX = 60.0
_STOPPED = {"T", "t", "Z", "X"}
"""States of threads that run no longer (proc(5))."""


def members(session: int) -> list[int]:
    """Return the running processes of a session, without zombies."""
    return [pid for pid, one in _processes().items() if one.session == session and one.runs]


def with_descendants(session: int) -> list[int]:
    """Return the running processes of a session and all of their descendants, whatever their session.

    Each server process of PostgreSQL, for example, is in a session of its own.
    """
    processes = {pid: one for pid, one in _processes().items() if one.runs}
    found: set[int] = set()
    more = {pid for pid, one in processes.items() if one.session == session}
    while more:
        found |= more
        more = {pid for pid, one in processes.items() if one.parent in more} - found
    return sorted(found)


def send(session: int, number: signal.Signals) -> None:
    """Send a signal to every running process of a session."""
    for pid in members(session):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it has ended


def kill(session: int) -> None:
    """Kill every process of a session; return once none is left."""
    deadline = time.monotonic() + SIGNAL_SECONDS_MAX
    while members(session):
        if time.monotonic() > deadline:
            raise ServiceTimeoutError(f"session {session}: still has processes {members(session)} after SIGKILL")
        send(session, signal.SIGKILL)  # repeatedly, since a process may have forked
        time.sleep(POLL_SECONDS)


def stop(session: int) -> None:
    """Stop every process of a session (SIGSTOP); return once none of their threads runs.

    A signal takes effect when the kernel delivers it: on a busy machine a server may answer a request meanwhile.
    """
    deadline = time.monotonic() + SIGNAL_SECONDS_MAX
    send(session, signal.SIGSTOP)
    while any(_runs_a_thread(pid) for pid in members(session)):
        if time.monotonic() > deadline:
            raise ServiceTimeoutError(f"session {session}: has threads that run after SIGSTOP")
        time.sleep(POLL_SECONDS)
        send(session, signal.SIGSTOP)  # repeatedly, since a process may have forked


@dataclass(frozen=True, slots=True)
class _Status:
    state: str
    parent: int
    session: int

    @property
    def runs(self) -> bool:
        return self.state not in {"Z", "X"}


def _runs_a_thread(pid: int) -> bool:
    """Whether a thread of a process is not stopped; none where it has ended."""
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if status.read_text(errors="replace").rpartition(")")[2].split()[0] not in _STOPPED:
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return False


def _processes() -> dict[int, _Status]:
    """Return every process by its pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        # proc(5): pid (name) state parent group session …; the name may contain spaces and brackets
        state, parent, _group, session = text.rpartition(")")[2].split()[:4]
        found[int(entry.name)] = _Status(state, int(parent), int(session))
    return found
