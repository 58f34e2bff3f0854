"""A database file as pages, read without SQLite: what a salvage looks through.

The format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, unpack

from agent.store.database import PAGE_BYTES

HEADER_BYTES = 100
"""What stands before the first page's own header."""
_WAL_HEADER = Struct(">IIIIIIII")
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_VERSION = 3_007_000
_FRAME_HEADER = Struct(">IIIIII")
_FRAME_BYTES = _FRAME_HEADER.size + PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Frame:
    """One page in the write-ahead log."""

    page: int
    at: int
    """Where its content starts in the log."""
    commits: bool
    """Whether it is the last one of a transaction."""


class Log:
    """The write-ahead log's frames of its current round, as their heads say; older rounds' leftovers are none."""

    def __init__(self, path: Path) -> None:
        self.path = Path(f"{path}-wal")
        self.exists = self.path.exists()
        self.whole = True
        """Whether its header is right, without which SQLite reads nothing of it."""
        self.commits_behind_damage = 0
        """Transactions that SQLite would pass over, since it reads up to the first frame that is not whole."""
        self.frames: list[Frame] = []
        if self.exists:
            self._read()

    def _read(self) -> None:
        with self.path.open("rb") as file:
            header = file.read(_WAL_HEADER.size)
            if len(header) < _WAL_HEADER.size:
                return
            magic, version, page_bytes, _, *salts_and_sum = _WAL_HEADER.unpack(header)
            self.whole = magic in _WAL_MAGIC and version == _WAL_VERSION and page_bytes == PAGE_BYTES
            order = ">" if magic & 1 else "<"
            total = _sum(header[:24], order)
            self.whole = self.whole and total == tuple(salts_and_sum[2:])
            at = _WAL_HEADER.size
            head = file.read(_FRAME_HEADER.size)
            salts = tuple(salts_and_sum[:2]) if self.whole else _FRAME_HEADER.unpack(head.ljust(24, b"\0"))[2:4]
            unbroken = self.whole
            while len(head) == _FRAME_HEADER.size:
                page, size, *rest = _FRAME_HEADER.unpack(head)
                content = file.read(PAGE_BYTES)
                if len(content) < PAGE_BYTES:
                    return
                if unbroken:
                    total = _sum(content, order, _sum(head[:8], order, total))
                    unbroken = tuple(rest) == (*salts, *total)
                if tuple(rest[:2]) == salts:
                    self.frames.append(Frame(page, at + _FRAME_HEADER.size, size != 0))
                    self.commits_behind_damage += size != 0 and not unbroken
                at += _FRAME_BYTES
                head = file.read(_FRAME_HEADER.size)


class Pages:
    """All versions of all pages; what cannot be read is empty."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._log = Log(path)
        self._log_file = os.open(self._log.path, os.O_RDONLY) if self._log.exists else None
        self._newest = {frame.page: frame for frame in self._log.frames}
        self._count = os.fstat(self._file).st_size // PAGE_BYTES + 1

    def close(self) -> None:
        """Close the files."""
        os.close(self._file)
        if self._log_file is not None:
            os.close(self._log_file)

    def versions(self) -> Iterator[tuple[int, bytes]]:
        """Give each page's number with each content of it, the newest first."""
        for frame in reversed(self._log.frames):
            yield frame.page, self._logged(frame)
        for number in range(1, self._count + 1):
            yield number, self.saved(number)

    def newest(self, number: int) -> bytes:
        """Read a page's newest content."""
        frame = self._newest.get(number)
        return self.saved(number) if frame is None else self._logged(frame)

    def saved(self, number: int) -> bytes:
        """Read a page's content in the file itself."""
        return _read(self._file, (number - 1) * PAGE_BYTES)

    def _logged(self, frame: Frame) -> bytes:
        assert self._log_file is not None
        return _read(self._log_file, frame.at)


def _read(file: int, at: int) -> bytes:
    """Read one page, filled up with zeros where the file ends; empty where the disk cannot."""
    try:
        page = os.pread(file, PAGE_BYTES, at)
    except OSError:
        return b""
    return page.ljust(PAGE_BYTES, b"\0") if page else b""


def _sum(data: bytes, order: str, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Go on with the log's checksum (section 4.2)."""
    first, second = before
    words = iter(unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return first, second
