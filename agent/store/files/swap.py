"""Files beside the store's: how a salvaged file takes a damaged one's place, also across a kill in between."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

_PARTS = ("", "-wal")
_SALVAGED = ".salvaged-"
_SALVAGING = ".salvaging"
_DAMAGED = ".damaged-"


def suspect(path: Path, reason: str) -> None:
    """Note that the next opening has to salvage."""
    write_durably(beside(path, ".suspect"), reason)


def suspicion(path: Path) -> str:
    """Return the reason why this opening has to salvage; empty where there is none."""
    mark = beside(path, ".suspect")
    return (text(mark) or "damaged") if mark.exists() else ""


def prepare(path: Path) -> Path:
    """Return the name under which to salvage, with room made: of files set aside, only the latest one is kept."""
    for old in set_aside(path):
        old.unlink()
    remove_leftovers(path)
    return beside(path, _SALVAGING)


def remove_leftovers(path: Path) -> None:
    """Remove what an unfinished salvage has left."""
    for part in ("", "-wal", "-shm", "-journal"):
        beside(path, f"{_SALVAGING}{part}").unlink(missing_ok=True)


def set_log_aside(path: Path, time: str) -> None:
    """Put a log away that is not the store's latest, so that nothing is read from it."""
    beside(path, "-wal").rename(beside(path, f"{_DAMAGED}{time}-older-wal"))
    beside(path, "-shm").unlink(missing_ok=True)
    sync_folder(path)


def finish(path: Path, new: Path, time: str) -> None:
    """Put a complete salvaged file in the damaged one's place."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.rename(beside(path, f"{_SALVAGED}{time}"))
    sync_folder(path)
    resume(path)


def resume(path: Path) -> None:
    """Finish a replacement that a kill has interrupted, of which each step may have happened, or clear it away."""
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
        sync_folder(path)  # renames may reach the medium in any order, and the old log must not meet the new file
        salvaged.rename(path)
        sync_folder(path)


def set_aside(path: Path) -> Iterator[Path]:
    """Yield the files that were set aside."""
    yield from path.parent.glob(f"{path.name}{_DAMAGED}*")


def beside(path: Path, part: str) -> Path:
    """Return the path of a file beside the store's, by what its name has more."""
    return Path(f"{path}{part}")


def text(mark: Path) -> str:
    """Read a mark; nothing where the disk cannot, since that it is there says the most."""
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
    sync_folder(mark)


def sync_folder(path: Path) -> None:
    """Flush the folder in which this path lies: a new name survives a power cut only then."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
