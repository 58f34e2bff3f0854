"""Find and signal all processes of a session, in any process groups."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from simulators.services.error import ServiceTimeoutError

POLL_SECONDS = 0.01
KILL_SECONDS_MAX = 60.0


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
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while members(session):
        if time.monotonic() > deadline:
            raise ServiceTimeoutError(f"session {session}: still has processes {members(session)} after SIGKILL")
        send(session, signal.SIGKILL)  # repeatedly, since a process may have forked
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class _Status:
    state: str
    parent: int
    session: int

    @property
    def runs(self) -> bool:
        return self.state not in {"Z", "X"}


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
