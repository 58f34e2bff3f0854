"""Reads command-line arguments and the files they name; raises ArgumentTypeError with the expected form."""

import argparse
import errno
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from agent.config import readers

STANDARD_INPUT = "-"
INPUT_BYTES_MAX = 16 << 20
"""Far above the largest body that a gateway accepts, and below its free memory."""
_AGO = re.compile(r"\d+(?:\.\d+)?\s*(?:s|m|h|d)")


def _argument(read: Callable[[object], int]) -> Callable[[str], int]:
    """Turn a reader of settings into a type of argparse."""

    def parse(text: str) -> int:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}; found {text!r}") from None

    return parse


positive, not_negative = _argument(readers.positive), _argument(readers.count)


def timestamp(text: str) -> int:
    """Read milliseconds since 1970 UTC, or a date and a time, local without a zone."""
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"expected milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z; found {text!r}"
        ) from None


def past_timestamp(text: str) -> int:
    """Read a timestamp, or how long ago it was, such as 10m; return milliseconds since 1970 UTC."""
    if not _AGO.fullmatch(text):
        try:
            return timestamp(text)
        except argparse.ArgumentTypeError as error:
            text = str(error).removeprefix("expected ")
            raise argparse.ArgumentTypeError(f"expected how long ago, such as 2h, {text}") from None
    return time.time_ns() // 1_000_000 - int(readers.duration(text) * 1000)


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
