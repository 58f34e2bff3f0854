"""The folder of a run: emptied before it, and full of evidence after it."""

from __future__ import annotations

import shutil
from pathlib import Path

from simulators.errors import RunError

_MARKER = ".oncegate-sim"
"""Names a folder as one that a run may empty."""


def empty(folder: Path) -> None:
    """Empty the folder; one that holds something else than an earlier run is refused."""
    if folder.exists():
        if any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise RunError(f"{folder} holds something else than an earlier run: choose another --folder")
        shutil.rmtree(folder)
    (folder / "logs").mkdir(parents=True)
    (folder / _MARKER).touch()
