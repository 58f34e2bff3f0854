"""Files with secrets: read without waiting, up to a bound, and only where they are their owner's alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

BYTES_MAX = 64 << 10
"""Certificates and keys in one file take less."""

_GROUP, _OTHERS = 0o070, 0o007
_CREDENTIALS = "CREDENTIALS_DIRECTORY"


def read_private(file: Path) -> str:
    """Return the text of a file that nobody but its owner can read or write.

    Raise OSError for any other file, UnicodeDecodeError for what is no text.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # a FIFO waits for a writer
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(file))
        if _is_open_to_others(file, mode):
            reason = f"others may read it (mode {mode & 0o777:o}); run: chmod 600 {file}"
            raise OSError(errno.EPERM, reason, str(file))
        with open(descriptor, "rb", closefd=False) as opened:
            content = opened.read(BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(content) > BYTES_MAX:
        raise OSError(errno.EFBIG, f"larger than {BYTES_MAX} bytes", str(file))
    return content.decode()


def _is_open_to_others(file: Path, mode: int) -> bool:
    """Whether somebody else may read a file of this mode.

    systemd lets a unit's user read its credentials by an access list, which the mode shows as a right of the group.
    """
    folder = os.environ.get(_CREDENTIALS)
    is_credential = folder is not None and file.absolute().parent == Path(folder)
    return bool(mode & (_OTHERS if is_credential else _GROUP | _OTHERS))
