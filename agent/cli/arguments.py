"""Reads the arguments of command lines; each function raises ArgumentTypeError with the expected form."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime

_AGO = re.compile(r"\d+(?:\.\d+)?\s*(?:s|m|h|d)")


def positive(text: str) -> int:
    """Read a whole number, 1 or more."""
    return _number(text, 1)


def not_negative(text: str) -> int:
    """Read a whole number, 0 or more."""
    return _number(text, 0)


def seconds(text: str) -> float:
    """Read a number of seconds, 0.1 or more."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.1 <= number <= 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds, 0.1 or more; found {text!r}")
    return number


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
    from agent.config.readers import duration

    return time.time_ns() // 1_000_000 - int(duration(text) * 1000)


def _number(text: str, least: int) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected a whole number, {least} or more; found {text!r}")
    return number
