"""Replaces a damaged file by a salvaged one, in steps that a kill may interrupt, and writes marks beside the store."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from agent.config.files import sync_folder

log = logging.getLogger(__name__)

_PARTS = ("", "-wal")
_SALVAGED = ".salvaged-"
_SALVAGING = ".salvaging"
_DAMAGED = ".damaged-"


def suspect(path: Path, reason: str) -> None:
    """Mark the store so that the next opening salvages it."""
    write_durably(beside(path, ".suspect"), reason)


def suspicion(path: Path) -> str:
    """Return the reason why this opening has to salvage; empty where it has not."""
    mark = beside(path, ".suspect")
    return (text(mark) or "damaged") if mark.exists() else ""


def prepare(path: Path) -> Path:
    """Return the path for a salvage, after deleting earlier damaged files: only the latest one is kept."""
    for old in damaged_files(path):
        old.unlink()
    remove_leftovers(path)
    return beside(path, _SALVAGING)


def remove_leftovers(path: Path) -> None:
    """Remove the files of an unfinished salvage."""
    for part in ("", "-wal", "-shm", "-journal"):
        beside(path, f"{_SALVAGING}{part}").unlink(missing_ok=True)


def move_log_away(path: Path, time: str) -> None:
    """Rename a log that is not the store's latest, so that nothing is read from it."""
    beside(path, "-wal").rename(beside(path, f"{_DAMAGED}{time}-older-wal"))
    beside(path, "-shm").unlink(missing_ok=True)
    sync_folder(path.parent)


def finish(path: Path, new: Path, time: str) -> None:
    """Replace the damaged file by a complete salvaged one."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.rename(beside(path, f"{_SALVAGED}{time}"))
    sync_folder(path.parent)
    resume(path)


def resume(path: Path) -> None:
    """Finish a replacement that was interrupted after any of its steps, or remove its leftovers."""
    remove_leftovers(path)
    for salvaged in path.parent.glob(f"{path.name}{_SALVAGED}*"):
        time = salvaged.name.removeprefix(f"{path.name}{_SALVAGED}")
        for part in _PARTS:
            old = beside(path, part)
            if old.exists():
                old.rename(beside(path, f"{_DAMAGED}{time}{part}"))
        beside(path, "-shm").unlink(missing_ok=True)
        beside(path, ".suspect").unlink(missing_ok=True)
        beside(path, ".open").unlink(missing_ok=True)
        sync_folder(path.parent)  # renames reach the medium in any order, and the old log must not meet the new file
        salvaged.rename(path)
        sync_folder(path.parent)


def damaged_files(path: Path) -> Iterator[Path]:
    """Yield the damaged files that a salvage has replaced."""
    yield from path.parent.glob(f"{path.name}{_DAMAGED}*")


def beside(path: Path, part: str) -> Path:
    """Return the path of a file beside the store's, whose name has this suffix."""
    return Path(f"{path}{part}")


def text(mark: Path) -> str:
    """Return the text of a mark; empty where the disk cannot read it, since its presence alone is sufficient."""
    try:
        return mark.read_text(errors="replace")
    except OSError as error:
        log.warning("store=mark file=%s unreadable=%r", mark, str(error))
        return ""


def write_durably(mark: Path, content: str) -> None:
    """Write a mark that survives a power cut."""
    with mark.open("w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(mark.parent)
