"""A disk that fails below the service's own SQLite: its writes, flushes and truncations use the functions below.

Python's SQLite manages its locks and its log's index as usual, so that readers and restarts are the real ones.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, cast
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.store.files import write_ahead_log
from agent.store.schema import database

_OK, _FULL, _IOERR_WRITE, _IOERR_FSYNC, _IOERR_TRUNCATE = 0, 13, 778, 1034, 1546
_OPEN_MAIN_DB, _OPEN_WAL = 0x100, 0x80000
SECTOR_BYTES = 512
"""Written as a whole or not at all: the header of a log, which lies in one sector, is the earlier or the new one."""
_names = itertools.count()
_registered: list[_System] = []
"""SQLite keeps their addresses for as long as the process lives."""


class Operation(Enum):
    WRITE = "write"
    FLUSH = "flush"
    TRUNCATE = "truncate"


class Error(Enum):
    """How an operation fails: at once, or with half of the sectors written."""

    FULL = "no space"
    BROKEN = "input/output error"
    SHORT = "half is written, then no space"


@dataclass(slots=True)
class Fault:
    """Operations on the log, the file or both that fail, from one on, several in a row."""

    operation: Operation
    error: Error
    suffixes: tuple[str, ...] = ("-wal",)
    after: int = 0
    """How many succeed before that."""
    times: int = 1 << 30
    hits: int = 0

    def strikes(self, operation: Operation, suffix: str) -> bool:
        if operation is not self.operation or suffix not in self.suffixes:
            return False
        if self.after:
            self.after -= 1
            return False
        self.hits += self.times > 0
        self.times -= 1
        return self.times >= 0


class FailingDisk:
    """Works normally until a fault is set."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self._system = _System(self)

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open the store for service on this disk."""
        address = f"{path.absolute().as_uri()}?vfs={self._system.name}"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False, factory=database.StoreConnection
        )
        try:
            database.prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[Fault]:
        self.fault = fault
        try:
            yield fault
        finally:
            self.fault = None

    def strikes(self, operation: Operation, suffix: str) -> Error | None:
        """Return how an operation fails, None where it succeeds."""
        return self.fault.error if self.fault is not None and self.fault.strikes(operation, suffix) else None

    def below(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also make the store's own system calls on the log fail."""
        calls = dict(vars(os))
        calls["ftruncate"] = self._checked(Operation.TRUNCATE, os.ftruncate)
        calls["fsync"] = self._checked(Operation.FLUSH, os.fsync)
        monkeypatch.setattr(write_ahead_log, "os", SimpleNamespace(**calls))

    def _checked(self, operation: Operation, call: Callable[..., None]) -> Callable[..., None]:
        def checked(*arguments: int) -> None:
            if self.strikes(operation, "-wal"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            call(*arguments)

        return checked


class _Vfs(Structure):
    """sqlite3_vfs, up to the replaced members; the rest is copied (https://www.sqlite.org/c3ref/vfs.html)."""


_XOPEN = CFUNCTYPE(c_int, POINTER(_Vfs), c_void_p, c_void_p, c_int, c_void_p)
_Vfs._fields_ = [
    ("version", c_int),
    ("file_bytes", c_int),
    ("path_bytes_max", c_int),
    ("next", c_void_p),
    ("name", c_char_p),
    ("data", c_void_p),
    ("open", _XOPEN),
    ("rest", c_void_p * 15),
]
_XCLOSE = CFUNCTYPE(c_int, c_void_p)
_XREAD = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_XWRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_XTRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_XSYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class _Methods(Structure):
    """sqlite3_io_methods."""

    _fields_ = [
        ("version", c_int),
        ("close", _XCLOSE),
        ("read", _XREAD),
        ("write", _XWRITE),
        ("truncate", _XTRUNCATE),
        ("sync", _XSYNC),
        ("rest", c_void_p * 13),
    ]


def _written_part(offset: int, count: int) -> int:
    """Return how many bytes of a write arrive before the disk is full: about half, and whole sectors."""
    end = offset + count
    whole = (offset + end) // 2 // SECTOR_BYTES * SECTOR_BYTES
    return (whole if whole > offset else (end - 1) // SECTOR_BYTES * SECTOR_BYTES) - offset


class _System:
    """SQLite's own file system under another name, with three operations in between."""

    def __init__(self, disk: FailingDisk) -> None:
        self._disk = disk
        self._library = ctypes.CDLL("libsqlite3.so.0")
        self._library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        self._below: _Vfs = self._library.sqlite3_vfs_find(None).contents
        self._vfs = _Vfs.from_buffer_copy(self._below)
        self.name = f"failing-{next(_names)}"
        self._vfs.name = self.name.encode()
        self._vfs.open = self._opener = _XOPEN(self._open)
        self._kept: dict[str, _Methods] = {}
        _registered.append(self)
        assert self._library.sqlite3_vfs_register(ctypes.byref(self._vfs), 0) == _OK

    def _open(self, vfs: Any, name: int, file: int, flags: int, flags_out: int) -> int:
        code: int = self._below.open(vfs, name, file, flags, flags_out)
        suffix = "-wal" if flags & _OPEN_WAL else "" if flags & _OPEN_MAIN_DB else None
        if code == _OK and suffix is not None:
            pointer = cast(file, POINTER(POINTER(_Methods)))
            if suffix not in self._kept:
                self._kept[suffix] = self._replaced(pointer.contents.contents, suffix)
            pointer[0] = ctypes.pointer(self._kept[suffix])
        return code

    def _replaced(self, original: _Methods, suffix: str) -> _Methods:
        methods = _Methods.from_buffer_copy(original)

        def write(file: int, data: int, count: int, offset: int) -> int:
            match self._disk.strikes(Operation.WRITE, suffix):
                case Error.FULL:
                    return _FULL
                case Error.BROKEN:
                    return _IOERR_WRITE
                case Error.SHORT:
                    if (part := _written_part(offset, count)) > 0:
                        original.write(file, data, part, offset)
                    return _FULL
            return int(original.write(file, data, count, offset))

        def truncate(file: int, size: int) -> int:
            fails = self._disk.strikes(Operation.TRUNCATE, suffix)
            return _IOERR_TRUNCATE if fails else int(original.truncate(file, size))

        def sync(file: int, flags: int) -> int:
            fails = self._disk.strikes(Operation.FLUSH, suffix)
            return _IOERR_FSYNC if fails else int(original.sync(file, flags))

        methods.write, methods.truncate, methods.sync = _XWRITE(write), _XTRUNCATE(truncate), _XSYNC(sync)
        return methods
