"""Timestamps, in milliseconds since 1970 UTC, as RFC 3339 text."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(milliseconds: int) -> str:
    """Return a timestamp of the years 1 to 9999 as RFC 3339 text in UTC, with milliseconds and Z."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(timespec="seconds")
