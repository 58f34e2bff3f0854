"""A file system that records every write, flush and truncation of the store, together with the acks.

It can end the process before a flush: the writes are then in the page cache, and not on the medium.
"""

import itertools
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from agent.store.files import write_ahead_log

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written to the file system, which may cache them until a flush."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file truncated or extended."""

    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A flush: all of the file's earlier writes are on the medium."""

    file: str


@dataclass(frozen=True, slots=True)
class FailedSync:
    """A flush that has failed: the kernel considers its data clean, and never writes it again."""

    file: str


@dataclass(frozen=True, slots=True)
class Delete:
    file: str


@dataclass(frozen=True, slots=True)
class Ack:
    fingerprints: tuple[bytes, ...]


Step = Write | Truncate | Sync | FailedSync | Delete | Ack


NO_KILL = 1 << 30
"""More flushes than a process makes."""


class KilledError(Exception):
    """The process has ended; its files are in the recording's `left`."""


class Recording:
    """The steps in the order in which they were made; files are named by their suffix after the store's name."""

    def __init__(self, path: Path, steps: Sequence[Step] = ()) -> None:
        self.path = path
        self.steps: list[Step] = list(steps)
        self.vfs = _RecordingSystem(self)
        self.flushes_left = NO_KILL
        """Of the log; the process is killed before the next one."""
        self.flush_fails = False
        """Whether it is killed after that one, which has failed."""
        self.left: Path | None = None

    def connect(self, path: Path | None = None) -> apsw.Connection:
        """Open the store, or another file, with SQLite writing through the recording."""
        return _Connection(str(path or self.path), vfs=self.vfs.name)

    def below(self, patch: pytest.MonkeyPatch) -> None:
        """Record the store's own system calls on the log, too."""

        def write(file: int, data: bytes, offset: int) -> int:
            count = os.pwrite(file, data, offset)
            self.note(Write(self._suffix_of(file), offset, data[:count]))
            return count

        def truncate(file: int, size: int) -> None:
            os.ftruncate(file, size)
            self.note(Truncate(self._suffix_of(file), size))

        def sync(file: int) -> None:
            os.fsync(file)
            self.note(Sync(self._suffix_of(file)))

        calls = {**vars(os), "pwrite": write, "ftruncate": truncate, "fsync": sync}
        patch.setattr(write_ahead_log, "os", SimpleNamespace(**calls))

    def note(self, step: Step) -> None:
        """Record a step of a running process; end it where that is due."""
        if self.left is not None:
            return
        if isinstance(step, Sync) and step.file == "-wal":
            self.flushes_left -= 1
            if self.flushes_left < 0:
                if self.flush_fails:
                    self.steps.append(FailedSync(step.file))
                folder = self.path.parent
                self.left = Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-killed"))) / self.path.name
                raise KilledError
        self.steps.append(step)

    def _suffix_of(self, file: int) -> str:
        """Return the suffix after the store's name; for the folder a name that no file has."""
        return self.suffix(str(Path(f"/proc/self/fd/{file}").readlink())) or "folder"

    def suffix(self, name: str) -> str | None:
        """Return the suffix after the store's name; None for other files, such as temporary ones."""
        return name.removeprefix(str(self.path)) if name.startswith(str(self.path)) else None


class _Connection(apsw.Connection):
    """Implements the part of sqlite3 that the store's code uses."""

    def executescript(self, sql: str) -> None:
        self.execute(sql)

    @property
    def total_changes(self) -> int:  # type: ignore[override]
        return super().total_changes()


def connect_for_reading(path: Path) -> apsw.Connection:
    """Open a second connection, beside one of a recording: two libraries of SQLite do not see each other's locks."""
    return _Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)


class _RecordingSystem(apsw.VFS):
    def __init__(self, recording: Recording) -> None:
        self.name = f"recording-{next(_names)}"
        self._recording = recording
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _RecordingFile(name, flags, self._recording)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        if (suffix := self._recording.suffix(filename)) is not None:
            self._recording.note(Delete(suffix))


class _RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], recording: Recording) -> None:
        super().__init__("", name, flags)
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._suffix = None if text is None else recording.suffix(text)
        self._note = recording.note

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        if self._suffix is not None:
            self._note(Write(self._suffix, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        if self._suffix is not None:
            self._note(Truncate(self._suffix, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        if self._suffix is not None:
            self._note(Sync(self._suffix))
