"""The gateway's own sequence numbers in an OSCORE context: none is ever used twice (RFC 8613 section 7.2.1, B.1.1).

They are reserved on disk in blocks before the first of a block is used. A store that was restored from a backup, or a
cloned card, would begin again where it once was; so each opening first leaps ahead by a random distance, and where
nothing is on disk it begins anywhere: two lives of one context most likely never meet.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

NUMBER_END = (1 << 40) - 1
"""The first that the protocol does not allow (RFC 8613 section 7.2.1)."""
BLOCK = 256
LEAP_MAX = 1 << 24
START_MAX = 1 << 39


class NumbersExhaustedError(Exception):
    """The context has no number left: the device needs new credentials."""


class SenderNumbers:
    """The numbers of one context, kept in one small file."""

    def __init__(self, file: Path, random: Random) -> None:
        self._file = file
        self._random = random
        self._next: int | None = None
        self._reserved = 0

    def take(self) -> int:
        """Give the next number; raise OSError where a block cannot be reserved, NumbersExhaustedError at the end."""
        if self._next is None:
            self._next = self._reserved = self._begin()
        if self._next == self._reserved:
            self._reserve(self._reserved + BLOCK)
        number = self._next
        self._next += 1
        return number

    def _begin(self) -> int:
        try:
            return int(self._file.read_text()) + self._random.randrange(LEAP_MAX)
        except (FileNotFoundError, ValueError):
            return self._random.randrange(START_MAX)

    def _reserve(self, end: int) -> None:
        if end > NUMBER_END:
            raise NumbersExhaustedError(f"{self._file}: no number is left; make new credentials")
        self._file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        written = self._file.with_suffix(".tmp")
        with written.open("w") as file:
            file.write(str(end))
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._reserved = end
