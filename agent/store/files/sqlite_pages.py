"""Reads a database file and its log as pages, and the rows of leaf pages, without SQLite, for a salvage.

The format: https://www.sqlite.org/fileformat2.html
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from struct import Struct, unpack

from agent.store.layout import LOG_FRAME_BYTES, LOG_HEADER_BYTES, PAGE_BYTES

HEADER_BYTES = 100
"""The file's header, before the first page's own."""
_WAL_HEADER = Struct(">IIIIIIII")
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_WAL_VERSION = 3_007_000
_FRAME_HEADER = Struct(">IIIIII")
_SUMMED_BYTES = 8
"""How much of a frame's head its checksum covers."""

_TABLE_LEAF = 0x0D
_INDEX_LEAF = 0x0A
_LEAF_HEADER_BYTES = 8
_LOCAL_MIN = (PAGE_BYTES - 12) * 32 // 255 - 23
_TABLE_LOCAL_MAX = PAGE_BYTES - 35
_INDEX_LOCAL_MAX = (PAGE_BYTES - 12) * 64 // 255 - 23
_INTEGER_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_ZERO, _ONE = 8, 9
_VARINT_BYTES_MAX = 9
PAYLOAD_BYTES_MAX = 1 << 28
"""More than any commit holds."""

Value = int | str | bytes | None
Sum = tuple[int, int]
Fetch = Callable[[int], bytes]
"""Returns a page by its number; empty where the disk cannot read it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One page in the write-ahead log."""

    page: int
    at: int
    """Where its content starts in the log."""
    file_pages: int
    """The file's size after the transaction that ends here; 0 in the middle of one."""


class LogFrames:
    """The frames of the write-ahead log's current round.

    By SQLite's rule (section 4.1) the unbroken chain of checksums up to its last commit counts. Frames behind it are of
    a transaction that was torn or refused, or are cut off from the chain by damage (decision 29).
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(f"{path}-wal")
        self.exists = self.path.exists()
        self.whole = True
        """Whether its header is valid, without which SQLite reads nothing of it."""
        self.frames: list[Frame] = []
        self.behind: list[Frame] = []
        self.unreadable = False
        """Whether the disk cannot read a part of it that SQLite would read."""
        if self.exists:
            file = os.open(self.path, os.O_RDONLY)
            try:
                self._read(file)
            finally:
                os.close(file)

    @property
    def commits_behind_damage(self) -> int:
        """The number of transactions behind the first damaged frame, which SQLite ignores."""
        return sum(frame.file_pages != 0 for frame in self.behind)

    def _read(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size < LOG_HEADER_BYTES:
            return
        header = read_piece(file, 0, LOG_HEADER_BYTES)
        self.whole = is_log_header(header)
        self.unreadable = not header
        salts = header[16:24] if self.whole else b""
        order = _order(header)
        total = _sum(header[:24], order)
        unbroken, committed = self.whole, 0
        is_blank = bool(header) and not any(header)
        for at in range(LOG_HEADER_BYTES, size - LOG_FRAME_BYTES + 1, LOG_FRAME_BYTES):
            piece = read_piece(file, at, LOG_FRAME_BYTES)
            if not piece:
                self.unreadable |= unbroken
                unbroken = is_blank = False
                continue
            is_blank = is_blank and not any(piece)
            head, content = piece[: _FRAME_HEADER.size], piece[_FRAME_HEADER.size :]
            page, file_pages, *_, first, second = _FRAME_HEADER.unpack(head)
            salts = salts or head[8:16]
            if unbroken:
                total = _sum(content, order, _sum(head[:_SUMMED_BYTES], order, total))
                unbroken = head[8:16] == salts and total == (first, second) and page > 0
            if head[8:16] == salts:
                self.behind.append(Frame(page, at + _FRAME_HEADER.size, file_pages))
                if unbroken and file_pages:
                    committed = len(self.behind)
        self.whole = self.whole or is_blank  # a power cut may leave a new log without its data
        self.frames, self.behind = self.behind[:committed], self.behind[committed:]


def newest_header(path: Path, log: LogFrames) -> bytes:
    """Return the file's header as of the log's last commit; empty where there is none, or the disk cannot read it."""
    frame = next((frame for frame in reversed(log.frames) if frame.page == 1), None)
    where, at = (path, 0) if frame is None else (log.path, frame.at)
    return read_from(where, at, HEADER_BYTES) if where.exists() else b""


class PageVersions:
    """All versions of all pages; a page that cannot be read is empty."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY) if path.exists() else None
        self._log = LogFrames(path)
        self._log_file = os.open(self._log.path, os.O_RDONLY) if self._log.exists else None
        self._newest = {frame.page: frame for frame in self._log.frames}
        self._behind = {frame.page: frame for frame in self._log.behind}
        self._count = 0 if self._file is None else os.fstat(self._file).st_size // PAGE_BYTES + 1

    def close(self) -> None:
        for file in (self._file, self._log_file):
            if file is not None:
                os.close(file)

    def passes(self) -> Iterator[tuple[Iterator[tuple[int, bytes]], Fetch]]:
        """Yield passes over the pages, the most trustworthy first, each with its reader of overflow pages.

        First the pages that SQLite would read, the newest first; then with the file's own overflow pages, since the
        log's may be damaged; last the frames that SQLite ignores, which only fill holes that remain.
        """
        yield self._current(), self.newest
        yield self._current(), self.saved
        if self._behind:
            yield self._versions(self._log.behind), self._latest
            yield self._current(), self._latest

    def newest(self, number: int) -> bytes:
        """Return a page's newest current content."""
        frame = self._newest.get(number)
        return self.saved(number) if frame is None else self._logged(frame)

    def saved(self, number: int) -> bytes:
        """Return a page's content in the file itself."""
        return b"" if self._file is None else _read_page(self._file, (number - 1) * PAGE_BYTES)

    def _latest(self, number: int) -> bytes:
        """Return a page's newest content, current or not."""
        frame = self._behind.get(number)
        return self.newest(number) if frame is None else self._logged(frame)

    def _current(self) -> Iterator[tuple[int, bytes]]:
        yield from self._versions(self._log.frames)
        for number in range(1, self._count + 1):
            yield number, self.saved(number)

    def _versions(self, frames: list[Frame]) -> Iterator[tuple[int, bytes]]:
        for frame in reversed(frames):
            yield frame.page, self._logged(frame)

    def _logged(self, frame: Frame) -> bytes:
        assert self._log_file is not None
        return _read_page(self._log_file, frame.at)


@lru_cache(maxsize=2)  # each commit asks about the header of the round
def is_log_header(header: bytes) -> bool:
    """Whether these bytes are a header that SQLite writes to its log (section 4.1)."""
    if len(header) < LOG_HEADER_BYTES:
        return False
    magic, version, page_bytes, _, _, _, *total = _WAL_HEADER.unpack(header)
    is_ours = magic in _WAL_MAGIC and version == _WAL_VERSION and page_bytes == PAGE_BYTES
    return is_ours and tuple(total) == _sum(header[:24], _order(header))


def read_piece(file: int, at: int, length: int) -> bytes:
    """Return bytes from a place; none where the disk cannot read them, as at a bad sector."""
    try:
        return os.pread(file, length, at)
    except OSError:
        return b""


def read_from(path: Path, at: int, length: int) -> bytes:
    """Return bytes from a place in a file, as `read_piece` does."""
    with path.open("rb", buffering=0) as file:
        return read_piece(file.fileno(), at, length)


def _read_page(file: int, at: int) -> bytes:
    """Return one page, padded with zeros where the file ends; empty where the disk cannot read it."""
    page = read_piece(file, at, PAGE_BYTES)
    return page.ljust(PAGE_BYTES, b"\0") if page else b""


def _order(header: bytes) -> str:
    """Return the byte order of the log's checksums, which its magic number names."""
    return ">" if header[3:4] and header[3] & 1 else "<"


def _sum(data: bytes, order: str, before: Sum = (0, 0)) -> Sum:
    """Return the log's checksum, continued over these bytes (section 4.2)."""
    first, second = before
    words = iter(unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return first, second


class _WrongCellError(Exception):
    """These bytes are not a cell."""


def rows(number: int, page: bytes, fetch: Fetch) -> Iterator[tuple[Value, ...]]:
    """Yield the readable rows of a leaf page (section 1.6); a table's have the rowid as their first column."""
    start = HEADER_BYTES if number == 1 else 0
    if len(page) != PAGE_BYTES or page[start] not in (_TABLE_LEAF, _INDEX_LEAF):
        return
    is_table = page[start] == _TABLE_LEAF
    cells = int.from_bytes(page[start + 3 : start + 5], "big")
    pointers = start + _LEAF_HEADER_BYTES
    for at in range(pointers, min(pointers + 2 * cells, PAGE_BYTES - 1), 2):
        try:
            yield _row(page, int.from_bytes(page[at : at + 2], "big"), fetch, is_table=is_table)
        except _WrongCellError:
            continue


def _row(page: bytes, at: int, fetch: Fetch, *, is_table: bool) -> tuple[Value, ...]:
    size, at = _varint(page, at)
    rowid = 0
    if is_table:
        rowid, at = _varint(page, at)
    values = _record(_payload(page, at, size, fetch, _TABLE_LOCAL_MAX if is_table else _INDEX_LOCAL_MAX))
    return (rowid, *values[1:]) if is_table else values


def _payload(page: bytes, at: int, size: int, fetch: Fetch, local_max: int) -> bytes:
    if not 0 <= size <= PAYLOAD_BYTES_MAX:
        raise _WrongCellError
    if size <= local_max:
        return page[at : at + size]
    local = _LOCAL_MIN + (size - _LOCAL_MIN) % (PAGE_BYTES - 4)
    local = local if local <= local_max else _LOCAL_MIN
    pieces = [page[at : at + local]]
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    missing = size - local
    while missing > 0:
        content = fetch(following) if following else b""
        # A lost page leaves a hole of its own size: the events before and behind it are still found.
        content = content if len(content) == PAGE_BYTES else bytes(PAGE_BYTES)
        pieces.append(content[4 : 4 + missing])
        missing -= PAGE_BYTES - 4
        following = int.from_bytes(content[:4], "big")
        if not following and missing > 0:
            break
    return b"".join(pieces)


def _record(payload: bytes) -> tuple[Value, ...]:
    header_end, at = _varint(payload, 0)
    place = header_end
    values: list[Value] = []
    while at < min(header_end, len(payload)):
        kind, at = _varint(payload, at)
        value, place = _value(payload, place, kind)
        values.append(value)
    if not values or at != header_end:
        raise _WrongCellError
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind == 0:
        return None, at
    if kind in (_ZERO, _ONE):
        return kind - _ZERO, at
    if kind in _INTEGER_BYTES:
        end = at + _INTEGER_BYTES[kind]
        return int.from_bytes(payload[at:end], "big", signed=True), end
    if kind < 12:
        raise _WrongCellError  # a float or reserved: in none of our tables
    end = at + (kind - 12) // 2
    content = payload[at:end]
    if kind % 2 == 0:
        return content, end
    try:
        return content.decode(), end
    except UnicodeDecodeError as error:
        raise _WrongCellError from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(at, at + _VARINT_BYTES_MAX):
        if place >= len(data):
            raise _WrongCellError
        byte = data[place]
        if place == at + _VARINT_BYTES_MAX - 1:
            value = value << 8 | byte
            return value - (1 << 64 if value >> 63 else 0), place + 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    raise _WrongCellError
