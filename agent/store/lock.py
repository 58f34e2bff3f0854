"""One agent at a time serves a store."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from agent.store import database


def lock(path: Path) -> int:
    """Hold the store against a second agent; the kernel lets go of it when the process ends."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise database.StoreError(f"{path}: another agent is using this store; stop it first") from error
    return descriptor
