"""Find and signal all processes of a session, in any process groups."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from simulators.services.error import ServiceTimeoutError

POLL_SECONDS = 0.01
KILL_SECONDS_MAX = 60.0


def members(session: int) -> list[int]:
    """Return the running processes of a session, without zombies."""
    return [pid for pid, (state, of) in _processes().items() if of == session and state not in {"Z", "X"}]


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


def _processes() -> dict[int, tuple[str, int]]:
    """Return state and session of every process by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        # proc(5): pid (name) state parent group session …; the name may contain spaces and brackets
        state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
        found[int(entry.name)] = (state, int(session))
    return found
