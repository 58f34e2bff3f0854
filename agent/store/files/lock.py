"""The lock by which only one agent at a time serves a store."""

import fcntl
import os
import time
from pathlib import Path

from agent.config.files import sync_folder
from agent.store.errors import StoreError

TRIES, PAUSE_SECONDS = 20, 0.01
"""A reading command holds the lock for some microseconds, to find out whether an agent runs (`database.in_use`)."""


def lock(path: Path) -> int:
    """Lock the store against a second agent, and create its folder where it is missing; return the lock's descriptor.

    The kernel releases the lock at the end of the process.

    Raise StoreError where another agent holds it, or where the folder takes no file.
    """
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o640)
    except PermissionError:
        raise  # the command line names the user to run as
    except FileExistsError as error:
        raise StoreError(f"{error.filename}: neither a folder nor a link to one") from error
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from error
    if not _acquire(descriptor):
        os.close(descriptor)
        raise StoreError(f"{path}: another agent is using this store; stop it first")
    return descriptor


def _acquire(descriptor: int) -> bool:
    """Take the lock; return False where it is held for longer than a reading command holds it."""
    for _ in range(TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(PAUSE_SECONDS)
        else:
            return True
    return False
