"""One agent at a time serves a store."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from agent.store.errors import StoreError
from agent.store.files import swap

TRIES, PAUSE_SECONDS = 20, 0.01
"""A reading command holds the lock for some microseconds, to ask who else does (`database.in_use`)."""


def lock(path: Path) -> int:
    """Hold the store against a second agent, its folder made where it is missing; the kernel ends it with the process.

    Raise StoreError where another agent holds it, or where the folder takes no file.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        for folder in missing:
            swap.sync_folder(folder)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o640)
    except PermissionError:
        raise  # the command line says as whom to run
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    if not _take(descriptor):
        os.close(descriptor)
        raise StoreError(f"{path}: another agent is using this store; stop it first")
    return descriptor


def _take(descriptor: int) -> bool:
    """Take the lock; False where it is held for longer than a command holds it that asks whether an agent runs."""
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_SECONDS)
        else:
            return True
    return False
