"""A file system (FUSE) that passes everything on to a folder, and records each change and each flush.

Events that were receipted are noted by the attribute `user.acked` of its root; `user.ended` has the steps written to a
file. An unmounted file system goes on as long as another mount namespace has it, such as one of a container.
"""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mfusepy  # type: ignore[import-untyped]

from simulators.services.process import Command, Process
from tests.agent.store.faults.recording import Ack, Sync, Truncate, Write
from tests.crashes.disk_steps import Link, Rename, Step, SyncFolder, Unlink

ACKED, ENDED = "user.acked", "user.ended"
_OPENING = os.O_ACCMODE | os.O_TRUNC


class RecordedDisk(mfusepy.Operations):  # type: ignore[misc]
    """The operations that a store uses, one at a time."""

    use_ns = True

    def __init__(self, folder: Path, record: Path) -> None:
        self._folder = folder
        self._record = record
        self._numbers = itertools.count()
        self._files: dict[str, str] = {}
        """The number of each path's file."""
        self._open: dict[int, str] = {}
        """The number of each descriptor's file."""
        self._steps: list[Step] = []
        for path in sorted(contents_of(folder)):
            self._files[path] = str(next(self._numbers))

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._real(path)) if fh is None else os.fstat(fh)
        names = ("st_mode", "st_nlink", "st_size", "st_uid", "st_gid", "st_ino", "st_blocks")
        times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") for kind in "amc"}
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *(file.name for file in self._real(path).iterdir())]

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._real(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_") and name != "f_fsid"}

    def open(self, path: str, flags: int) -> int:
        fh = os.open(self._real(path), (flags & ~_OPENING) | os.O_RDWR)
        self._open[fh] = self._files[path]
        if flags & os.O_TRUNC:
            self.truncate(path, 0, fh)
        return fh

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        fh = os.open(self._real(path), os.O_RDWR | os.O_CREAT, mode)
        self._files[path] = self._open[fh] = str(next(self._numbers))
        self._steps.append(Link(path, self._files[path]))
        return fh

    def release(self, path: str, fh: int) -> int:
        del self._open[fh]
        os.close(fh)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        count = os.pwrite(fh, data, offset)
        self._steps.append(Write(self._open[fh], offset, bytes(data[:count])))
        return count

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._real(path) if fh is None else fh, length)
        self._steps.append(Truncate(self._files[path] if fh is None else self._open[fh], length))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._steps.append(Sync(self._open[fh]))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._steps.append(SyncFolder(path))
        return 0

    def unlink(self, path: str) -> int:
        self._real(path).unlink()
        self._files.pop(path, None)
        self._steps.append(Unlink(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        self._real(old).rename(self._real(new))
        if old in self._files:  # else a socket
            self._files[new] = self._files.pop(old)
            self._steps.append(Rename(old, new, self._files[new]))
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        os.mknod(self._real(path), mode, dev)  # a socket, which no restart needs
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._real(path).mkdir(mode)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self._real(path).chmod(mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._real(path))  # the store uses no times
        return 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        if name == ENDED:
            self._record.write_bytes(pickle.dumps(self._steps))
        else:
            self._steps.append(Ack(tuple(value.split())))
        return 0

    def _real(self, path: str) -> Path:
        return Path(f"{self._folder}{path}")


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their paths below it."""
    return {f"/{file.relative_to(folder)}": file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@contextmanager
def recorded(mount: Path, folder: Path, record: Path, module: str) -> Iterator[None]:
    """Mount a folder, with its changes recorded, for the time of a block; raise ServiceError where that fails.

    The module is run with the three paths as arguments.
    """
    mount.mkdir(exist_ok=True)
    command = (sys.executable, "-m", module, str(mount), str(folder), str(record))
    with Process(Command("recorded disk", command, record.with_suffix(".log"))) as server:
        server.wait_until(lambda: os.path.ismount(mount), "the folder is mounted")
        try:
            yield
            os.setxattr(mount, ENDED, b"")
        finally:
            subprocess.run(("umount", str(mount)), check=True)


def steps_of(record: Path) -> list[Step]:
    """Return the recorded steps."""
    steps: list[Step] = pickle.loads(record.read_bytes())
    return steps
