"""Which files and folders are flushed, and what is renamed or linked in between; and calls that the kernel refuses.

A power cut keeps no call after a flush.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def recorded(monkeypatch: pytest.MonkeyPatch, *renames: str) -> list[str]:
    """Return the calls from now on: `fsync` with the name of its file, which is "file" where it has none yet."""
    calls: list[str] = []

    def record(name: str) -> None:
        call = getattr(os, name)

        def recording(*arguments: int | Path) -> None:
            calls.append(name if name in renames else f"{name} {_flushed(arguments[0])}")
            call(*arguments)

        monkeypatch.setattr(os, name, recording)

    for name in ("fsync", *renames):
        record(name)
    return calls


def refusing(reason: int) -> Callable[..., Any]:
    """Return what stands for a call that fails with this error number."""

    def refuse(*_: object, **__: object) -> Any:
        raise OSError(reason, os.strerror(reason))

    return refuse


def _flushed(descriptor: int | Path) -> str:
    path = Path(f"/proc/self/fd/{descriptor}").readlink()
    return path.name if path.is_dir() else "file"
