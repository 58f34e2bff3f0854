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
_LOG_GONE = "the log is gone"


def suspect(path: Path, reason: str) -> None:
    """Note that the next opening has to salvage."""
    _write_durably(_beside(path, ".suspect"), reason)


def suspicion(path: Path) -> str:
    """Return the reason why this opening has to salvage; empty where there is none."""
    mark = _beside(path, ".suspect")
    return (_text(mark) or "damaged") if mark.exists() else ""


def mark_open(path: Path) -> None:
    """Note that there is a write-ahead log from now on; not flushed, since it is only there to raise suspicion."""
    try:
        _beside(path, ".open").write_text("")
    except OSError as error:  # a full disk does not keep a store from opening
        log.warning("store=open mark=failed reason=%r", str(error))


def note_end(path: Path, end: int, boot: str) -> None:
    """Note the last position in the log, by which the loss of a log is told from one that was written back.

    Not flushed: what a process wrote survives its kill, and after another boot the note does not count. Each note
    overwrites the one before it in its place, which takes no room.
    """
    try:
        mark = os.open(_beside(path, ".open"), os.O_WRONLY)
        try:
            os.pwrite(mark, _noted(end, boot).encode(), 0)
        finally:
            os.close(mark)
    except OSError as error:
        log.debug("store=open note=failed reason=%r", str(error))


def mark_closed(path: Path) -> None:
    """Note that everything is in the file itself."""
    _beside(path, ".open").unlink(missing_ok=True)


def lacks_log(path: Path) -> bool:
    """Whether the write-ahead log of a service that did not end in order is gone, and no gap on disk says so yet."""
    mark = _beside(path, ".open")
    if not (mark.exists() and path.exists()):
        return False
    return not _beside(path, "-wal").exists() or _text(mark).endswith(_LOG_GONE)


def note_lost_log(path: Path) -> None:
    """Note that the log is gone until `mark_open`: whoever opens the store makes a new one, which would hide it."""
    mark = _beside(path, ".open")
    noted = _text(mark).removesuffix(_LOG_GONE)
    _write_durably(mark, f"{noted}{_LOG_GONE}")


def has_all(path: Path, end: int, boot: str) -> bool:
    """Whether a file whose log is gone holds all that the log held: another program has written it back."""
    noted = _text(_beside(path, ".open")).removesuffix(_LOG_GONE)
    position = noted.partition(" ")[0]
    return position.isdecimal() and noted == _noted(int(position), boot) and end >= int(position)


def lacks_file(path: Path) -> bool:
    """Whether the file itself is gone: what lies beside it belongs to a store that was in use."""
    if path.exists():
        return False
    log = _beside(path, "-wal")
    return _beside(path, ".open").exists() or (log.exists() and log.stat().st_size > 0)


def prepare(path: Path) -> Path:
    """Return the name under which to salvage, with room made: of files set aside, only the latest one is kept."""
    for old in set_aside(path):
        old.unlink()
    remove_leftovers(path)
    return _beside(path, _SALVAGING)


def remove_leftovers(path: Path) -> None:
    """Remove what an unfinished salvage has left."""
    for part in ("", "-wal", "-shm", "-journal"):
        _beside(path, f"{_SALVAGING}{part}").unlink(missing_ok=True)


def finish(path: Path, new: Path, time: str) -> None:
    """Put a complete salvaged file in the damaged one's place."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.rename(_beside(path, f"{_SALVAGED}{time}"))
    _sync_folder(path)
    resume(path)


def resume(path: Path) -> None:
    """Finish a replacement that a kill has interrupted, of which each step may have happened, or clear it away."""
    remove_leftovers(path)
    for salvaged in path.parent.glob(f"{path.name}{_SALVAGED}*"):
        time = salvaged.name.removeprefix(f"{path.name}{_SALVAGED}")
        for part in _PARTS:
            old = _beside(path, part)
            if old.exists():
                old.rename(_beside(path, f"{_DAMAGED}{time}{part}"))
        _beside(path, "-shm").unlink(missing_ok=True)
        _beside(path, ".suspect").unlink(missing_ok=True)
        _beside(path, ".open").unlink(missing_ok=True)
        salvaged.rename(path)
        _sync_folder(path)


def set_aside(path: Path) -> Iterator[Path]:
    """Give the files that were set aside."""
    yield from path.parent.glob(f"{path.name}{_DAMAGED}*")


def _beside(path: Path, part: str) -> Path:
    return Path(f"{path}{part}")


def _text(mark: Path) -> str:
    """Read a mark; nothing where the disk cannot, since that it is there says the most."""
    try:
        return mark.read_text(errors="replace")
    except OSError as error:
        log.warning("store=mark file=%s unreadable=%r", mark, str(error))
        return ""


def _noted(end: int, boot: str) -> str:
    return f"{end:020} {boot}\n"


def _write_durably(mark: Path, text: str) -> None:
    with mark.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(mark)


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
