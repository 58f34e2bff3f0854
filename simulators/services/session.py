"""Find and signal all processes of one session, whatever groups they have moved to."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from simulators.services.error import ServiceTimeoutError

POLL_SECONDS = 0.01
KILL_SECONDS_MAX = 60.0


def members(session: int) -> list[int]:
    """Return the living processes of a session; the dead that nobody has reaped yet do not count."""
    return [pid for pid, (state, of) in _processes().items() if of == session and state not in {"Z", "X"}]


def send(session: int, number: signal.Signals) -> None:
    """Send a signal to every living process of a session."""
    for pid in members(session):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it ended meanwhile


def kill(session: int) -> None:
    """Kill every process of a session, and return when none is left."""
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while members(session):
        if time.monotonic() > deadline:
            raise ServiceTimeoutError(f"session {session}: still has processes {members(session)} after SIGKILL")
        send(session, signal.SIGKILL)  # again and again: one of them may just have forked
        time.sleep(POLL_SECONDS)


def _processes() -> dict[int, tuple[str, int]]:
    """Return state and session of every process, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        # proc(5): pid (name) state parent group session …; the name may hold spaces and brackets
        state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
        found[int(entry.name)] = (state, int(session))
    return found
