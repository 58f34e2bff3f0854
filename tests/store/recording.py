"""A file system that remembers: every write, flush and truncation that SQLite makes, beside what was acked."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes given to the file system, which may keep them to itself until a flush."""

    file: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """A file cut off, or its end moved."""

    file: str
    size: int


@dataclass(frozen=True, slots=True)
class Sync:
    """A flush: all of the file's writes before it are on the medium."""

    file: str


@dataclass(frozen=True, slots=True)
class Delete:
    """A file removed."""

    file: str


@dataclass(frozen=True, slots=True)
class Ack:
    """Events promised to a sensor."""

    fingerprints: tuple[bytes, ...]


Step = Write | Truncate | Sync | Delete | Ack


class Recording:
    """The steps in the order in which they were made; files go by what follows the store's name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: list[Step] = []
        self.vfs = _RecordingSystem(self)

    def connect(self) -> apsw.Connection:
        """Open the store with SQLite writing through the recording."""
        return _Connection(str(self.path), vfs=self.vfs.name)

    def suffix(self, name: str) -> str | None:
        """Give what follows the store's name; None for other files, such as temporary ones."""
        return name.removeprefix(str(self.path)) if name.startswith(str(self.path)) else None


class _Connection(apsw.Connection):
    """Speaks as far like sqlite3 as the store's code listens."""

    def executescript(self, sql: str) -> None:
        self.execute(sql)

    @property
    def total_changes(self) -> int:  # type: ignore[override]
        return super().total_changes()


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
            self._recording.steps.append(Delete(suffix))


class _RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], recording: Recording) -> None:
        super().__init__("", name, flags)
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._suffix = None if text is None else recording.suffix(text)
        self._steps = recording.steps

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        if self._suffix is not None:
            self._steps.append(Write(self._suffix, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        if self._suffix is not None:
            self._steps.append(Truncate(self._suffix, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        if self._suffix is not None:
            self._steps.append(Sync(self._suffix))
