"""Finds damage that SQLite does not report: a wrong header, a cut file, commits lost in the write-ahead log."""

from __future__ import annotations

import os
from pathlib import Path

from agent.store.errors import DamagedStoreError
from agent.store.files import use_mark
from agent.store.files.sqlite_pages import HEADER_BYTES, LogFrames, newest_header, read_piece
from agent.store.layout import PAGE_BYTES
from agent.store.schema.database import breaking_step, check_version

_MAGIC = b"SQLite format 3\0"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_ROOT_MAX = 64
"""The roots of all tables are among the first pages."""
_LOCK_PAGE = (1 << 30) // PAGE_BYTES + 1
"""Holds the bytes that SQLite locks, and is never written."""
_TORN_COMMITS_MAX = 1
"""A power cut tears the commit that was being written, and no earlier one: each waits for the flush of the one before.

The frames of a failed commit are cut off before the next one is written (write_ahead_log.py)."""


def inspect_files(path: Path) -> None:
    """Raise DamagedStoreError if the files are damaged, StoreError if only a newer release may open them.

    Call it before SQLite opens and changes them.
    """
    if use_mark.lacks_file(path):
        raise DamagedStoreError(f"{path}: missing, though its log or the mark of its use is there")
    log = LogFrames(path)
    if path.exists() and not _is_being_created(path):
        header = _beginning(path, HEADER_BYTES)
        if not _is_header(header):
            raise DamagedStoreError(f"{path}: its header is not what SQLite writes")
        check_version(path, *_version(newest_header(path, log)))
        _inspect_length(path, header, log)
    if log.unreadable:
        raise DamagedStoreError(f"{log.path}: the disk cannot read all of it")
    if not log.whole:
        raise DamagedStoreError(f"{log.path}: its header is not what SQLite writes")
    if log.commits_behind_damage > _TORN_COMMITS_MAX:
        raise DamagedStoreError(f"{log.path}: damaged, with {log.commits_behind_damage} commits behind it")


def schema_version(path: Path) -> int:
    """Return the version of the store's schema; 0 where it cannot be read, or is damaged."""
    version, application = _version(newest_header(path, LogFrames(path)))
    return 0 if breaking_step(version, application) is None else version


def _version(header: bytes) -> tuple[int, int]:
    return int.from_bytes(header[60:64], "big"), int.from_bytes(header[68:72], "big")


def _inspect_length(path: Path, header: bytes, log: LogFrames) -> None:
    """Raise DamagedStoreError where a page is neither in the file nor in its log.

    The log may hold the file's last pages: a reader, or a full disk, keeps them from being written back.
    """
    pages = log.frames[-1].file_pages if log.frames else int.from_bytes(header[28:32], "big")
    logged = {frame.page for frame in log.frames}
    behind_the_end = range(path.stat().st_size // PAGE_BYTES + 1, pages + 1)
    if len(behind_the_end) > len(logged) + 1 or any(
        page not in logged for page in behind_the_end if page != _LOCK_PAGE
    ):
        raise DamagedStoreError(f"{path}: cut off, {pages} pages expected")


def _is_being_created(path: Path) -> bool:
    """Whether the file's creation was interrupted: nothing else has a rollback journal.

    SQLite completes the journal's header before it writes to the file.
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.exists():
        return False
    return path.stat().st_size == 0 or _beginning(journal, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC


def _beginning(path: Path, length: int) -> bytes:
    """Return the first bytes of a file; none where the disk cannot read them."""
    file = os.open(path, os.O_RDONLY)
    try:
        return read_piece(file, 0, length)
    finally:
        os.close(file)


def _is_header(header: bytes) -> bool:
    """Whether SQLite writes such a header for the store (https://www.sqlite.org/fileformat2.html section 1.3)."""
    return (
        len(header) == HEADER_BYTES
        and header.startswith(_MAGIC)
        and int.from_bytes(header[16:18], "big") == PAGE_BYTES
        and header[18] == header[19]
        and header[18] in (1, 2)
        and header[20:24] == b"\0\x40\x20\x20"
        and int.from_bytes(header[44:48], "big") in (0, 4)
        and int.from_bytes(header[52:56], "big") <= _ROOT_MAX
        and int.from_bytes(header[56:60], "big") in (0, 1)
        and int.from_bytes(header[64:68], "big") in (0, 1)
        and header[72:92] == bytes(20)
    )
