"""The lock that one agent holds on its store, and who asks for it meanwhile."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from agent.store import database
from agent.store.lock import lock

HELD_SECONDS = 0.03
"""Far longer than the question takes."""


def test_a_command_that_asks_whether_an_agent_runs_keeps_none_from_starting(tmp_path: Path) -> None:
    path = tmp_path / database.FILE_NAME
    os.close(lock(path))
    asking = os.open(f"{path}.lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # in the middle of `database.in_use`
    answered = threading.Timer(HELD_SECONDS, os.close, [asking])
    answered.start()
    os.close(lock(path))
    answered.join()


def test_a_second_agent_is_refused_and_the_first_is_seen(tmp_path: Path) -> None:
    path = tmp_path / database.FILE_NAME
    held = lock(path)
    assert database.in_use(path)
    with pytest.raises(database.StoreError, match="another agent"):
        lock(path)
    os.close(held)
    assert not database.in_use(path)
    os.close(lock(path))
