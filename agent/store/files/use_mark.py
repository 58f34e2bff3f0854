"""The mark of a store in use, `events.db.open`, which exists beside the file while events may be in the log alone.

It holds the last committed position, which shows whether a log that is missing, or has lost its end, held events; and
the log's round, which shows whether the log was replaced by an older copy or another log.
"""

import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent.store.files import swap

log = logging.getLogger(__name__)

_LOG_GONE = "the log is missing"
_NO_ROUND = "-" * 8
_NOTE = re.compile(rf"(?P<end>[0-9]{{20}}) (?P<round>[0-9a-f]{{8}}|{_NO_ROUND}) (?P<boot>[^\n]*)\n")
_MODE = 0o644


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last position that a store is known to have committed."""

    end: int
    boot: str
    """The boot id of the machine: after a reboot the latest writes may be missing, since they are not flushed."""
    log_round: int | None = None
    """The first salt in the header of the log that held the commit; None where the log was empty."""


class UseMark:
    """The mark of the serving process, on an open descriptor: no write has to open a file."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = mark_of(path)
        self._boot = boot
        self._file: int | None = None
        self._fails = False
        self._noted_round: int | None = None

    def names(self, log_round: int | None) -> bool:
        """Whether the latest note was written, and has this round of the log."""
        return not self._fails and self._noted_round == log_round

    def note(self, end: int, log_round: int | None) -> None:
        """Write the last position and the log's round over those before, before any ack.

        Not flushed: a process's writes survive its kill, and after a power cut the boot is another one. A mark that
        cannot be written is emptied: with an older position a lost log would look like one that was written back.
        """
        try:
            self._write(f"{end:020} {_NO_ROUND if log_round is None else f'{log_round:08x}'} {self._boot}\n".encode())
        except OSError as error:
            if not self._fails:
                log.warning("store=open note=failed reason=%r", str(error))
            self._fails = True
            with suppress(OSError):
                os.truncate(self._path, 0)
        else:
            self._fails = False
            self._noted_round = log_round

    def remove(self) -> None:
        """Remove the mark: everything is in the file itself."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, text: bytes) -> None:
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, _MODE)
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))  # the rest is of an earlier process, and declared by now
        else:
            os.pwrite(self._file, text, 0)


def mark_of(path: Path) -> Path:
    """Return the path of a store's mark."""
    return swap.beside(path, ".open")


def lacks_log(path: Path) -> bool:
    """Whether a killed service's write-ahead log is gone, and no gap on disk records it yet."""
    mark = mark_of(path)
    if not (mark.exists() and path.exists()):
        return False
    return not swap.beside(path, "-wal").exists() or swap.text(mark).endswith(_LOG_GONE)


def note_lost_log(path: Path) -> None:
    """Record until the next commit that the log is missing: opening creates a new one and would hide it."""
    mark = mark_of(path)
    swap.write_durably(mark, f"{swap.text(mark).removesuffix(_LOG_GONE)}{_LOG_GONE}")


def noted(path: Path) -> LastCommit | None:
    """Return the content of the mark; None where there is none, or where it cannot be read."""
    mark = mark_of(path)
    match = _NOTE.match(swap.text(mark)) if mark.exists() else None
    if match is None:
        return None
    return LastCommit(
        int(match["end"]), match["boot"], None if match["round"] == _NO_ROUND else int(match["round"], 16)
    )


def lacks_file(path: Path) -> bool:
    """Whether the file itself is gone, while the log or mark beside it shows that the store was in use."""
    if path.exists():
        return False
    wal = swap.beside(path, "-wal")
    return mark_of(path).exists() or (wal.exists() and wal.stat().st_size > 0)
