"""Files that people write: settings, secrets, certificates, whatever they turn out to hold.

Reading one neither waits (a FIFO nobody writes to, a terminal) nor takes memory without bound (a device, a file of
gigabytes).
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

BYTES_MAX = 1 << 20
"""Thousands of times what a configuration takes, and what a gateway always has."""
SECRET_BYTES_MAX = 64 << 10
"""Certificates and keys in one file take less."""

_GROUP, _OTHERS = 0o070, 0o007
_CREDENTIALS = "CREDENTIALS_DIRECTORY"


class PrivateFileError(Exception):
    """A private file cannot be used; the message is the reason, without the file's name or content."""


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


def read_private(path: Path) -> str:
    """Return the text of a file that only its owner can read or write; raise PrivateFileError for any other file."""
    try:
        content = read(path, SECRET_BYTES_MAX)
        text = content.data.decode()
    except OSError as error:
        raise PrivateFileError(error.strerror) from error
    except UnicodeDecodeError:
        raise PrivateFileError("not UTF-8 text") from None
    if _is_open_to_others(path, content.mode):
        raise PrivateFileError(f"others may read it (mode {content.mode & 0o777:o}); run: chmod 600 {path}")
    return text


def _is_open_to_others(path: Path, mode: int) -> bool:
    """Whether somebody else may read a file of this mode.

    systemd lets a unit's user read its credentials by an access list, which the mode shows as a right of the group.
    """
    folder = os.environ.get(_CREDENTIALS)
    is_credential = folder is not None and path.absolute().parent == Path(folder)
    return bool(mode & (_OTHERS if is_credential else _GROUP | _OTHERS))
