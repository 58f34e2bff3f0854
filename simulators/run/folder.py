"""The folder of a run, emptied at its start."""

from __future__ import annotations

import shutil
from pathlib import Path

from simulators.errors import RunError

_MARKER = ".oncegate-sim"
"""Marks a folder that a run may empty."""


def empty(folder: Path) -> None:
    """Empty the folder; raise RunError where it holds something else than an earlier run."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise RunError(f"{folder} holds something else than an earlier run: choose another --folder")
        shutil.rmtree(folder)
    (folder / "logs").mkdir(parents=True)
    (folder / _MARKER).touch()
