"""Reads what a command is given: a file, or the standard input, up to a limit."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

STANDARD_INPUT = "-"
INPUT_BYTES_MAX = 16 << 20
"""Far above the largest body that a gateway accepts, and below its free memory."""


def read_input(name: str) -> bytes:
    """Return the bytes of a file, or of the standard input; raise OSError, also for more than INPUT_BYTES_MAX."""
    if name == STANDARD_INPUT:
        content = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    else:
        with Path(name).open("rb") as file:
            content = file.read(INPUT_BYTES_MAX + 1)
    if len(content) > INPUT_BYTES_MAX:
        raise OSError(errno.EFBIG, f"larger than {INPUT_BYTES_MAX} bytes", name)
    return content
