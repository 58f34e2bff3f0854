"""Files that a keeper of the gateway writes: settings, secrets, certificates, whatever they turn out to hold.

Reading one neither waits (a FIFO nobody writes to, a terminal) nor takes memory without bound (a device, a file of
gigabytes), and every failure is an OSError, a UnicodeDecodeError or a TOMLDecodeError.
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTES_MAX = 1 << 20
"""Thousands of times what a configuration takes, and what a gateway always has."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was read, and its mode at that moment."""

    data: bytes
    mode: int


def read(path: Path, bytes_max: int = BYTES_MAX) -> Content:
    """Read a regular file, or what a link to one leads to; raise OSError for anything else and anything larger."""
    # Not blocking: open() on a FIFO waits for a writer. No terminal becomes ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"larger than {bytes_max} bytes", str(path))
    return Content(data, mode)


def read_text(path: Path) -> str:
    """Read a file as UTF-8 with the line ends of Unix; raise OSError or UnicodeDecodeError."""
    return read(path).data.decode().replace("\r\n", "\n")


def check(*paths: Path | None) -> None:
    """Raise OSError for a file that cannot be read as above: a library is going to open it by its name."""
    for path in paths:
        if path is not None:
            read(path)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk: a file made or renamed in it then survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise TOMLDecodeError for what is none, is nested too deeply, or has a number that is too long."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("nested too deeply") from None
    except ValueError as error:
        raise tomllib.TOMLDecodeError(str(error)) from error
