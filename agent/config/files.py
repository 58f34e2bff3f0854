"""Reads configuration files, as text and as TOML, writes new ones, and flushes folders to the disk.

Every failure is an OSError or a ValueError.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

from contract.files import read


def read_text(path: Path) -> str:
    """Return a file's text (UTF-8, with or without a BOM) with Unix line ends; raise OSError or UnicodeDecodeError."""
    return read(path).data.decode("utf-8-sig").replace("\r\n", "\n")


def check(*paths: Path | None) -> None:
    """Raise OSError for a file that `read_text` cannot read, before a library opens it by its name."""
    for path in paths:
        if path is not None:
            read(path)


def write_new(file: Path, text: str, mode: int) -> None:
    """Write a new file atomically, of its folder's group; raise FileExistsError, or another OSError."""
    draft = file.with_name(f".{file.name}.draft")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, mode)) as opened:
            os.fchmod(opened.fileno(), mode)
            os.fchown(opened.fileno(), -1, file.parent.stat().st_gid)  # the agent reads secrets by the folder's group
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.link(draft, file)
        try:
            sync_folder(file.parent)
        except OSError:
            file.unlink()
            raise
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that created and renamed files survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError, also for deep nesting and numbers that are too long."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
