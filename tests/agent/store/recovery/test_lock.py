"""The lock that an agent holds on its store, and commands that check it meanwhile."""

import fcntl
import os
import threading
from pathlib import Path

import pytest

from agent.store.errors import StoreError
from agent.store.files.lock import lock
from agent.store.layout import FILE_NAME
from agent.store.schema import database

HELD_SECONDS = 0.03
"""Far longer than the check takes."""


@pytest.mark.guarantee(3)
def test_a_command_that_asks_whether_an_agent_runs_keeps_none_from_starting(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    os.close(lock(path))
    asking = os.open(f"{path}.lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)  # in the middle of `database.in_use`
    answered = threading.Timer(HELD_SECONDS, os.close, [asking])
    answered.start()
    os.close(lock(path))
    answered.join()


def test_a_second_agent_is_refused_and_the_first_is_seen(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    held = lock(path)
    assert database.in_use(path)
    with pytest.raises(StoreError, match="another agent"):
        lock(path)
    os.close(held)
    assert not database.in_use(path)
    os.close(lock(path))


@pytest.mark.guarantee(1)
def test_a_folder_that_is_made_for_the_store_is_on_the_medium_with_all_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flushed file in a folder is lost in a power cut if the folder's own name is not flushed."""
    flushed: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(Path(f"/proc/self/fd/{file}").readlink()))
    folder = tmp_path / "state" / "of" / "a gateway"
    os.close(lock(folder / FILE_NAME))
    assert sorted(flushed) == [tmp_path, tmp_path / "state", tmp_path / "state" / "of"]
    os.close(lock(folder / FILE_NAME))
    assert len(flushed) == 3
