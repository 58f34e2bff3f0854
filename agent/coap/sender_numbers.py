"""The gateway's own sequence numbers under OSCORE: none is ever used twice (RFC 8613 section 7.2.1, B.1.1).

One sequence serves all contexts: a number is fresh for each of them, and one flush to the disk for many devices. The
numbers are reserved on disk in blocks before the first of a block is used. A store that was restored from a backup, or
a cloned card, would begin again where it once was; so each process first leaps ahead by a random distance, a share of
the numbers that are left. Two copies of a gateway that run at once draw from one range some day if each of them takes
more numbers than lie between their leaps, half a billion at first.
"""

from __future__ import annotations

import logging
import os
from hashlib import blake2b
from pathlib import Path
from random import Random

from agent import files

NUMBER_END = (1 << 40) - 1
"""The first that the protocol does not allow (RFC 8613 section 7.2.1)."""
BLOCK = 16_384
"""Reserved at once, while the event loop waits for two flushes: at all that `Tuning.protected_per_second` lets in, once
in 55 s. Each start gives up what is left of a block, which is nothing beside a leap."""
LEAP_SHARE = 1_024
"""A leap is shorter than this part of what is left, so starting again and again never uses the numbers up."""
START_MAX = 1 << 39
_CHECK_BYTES = 4

_log = logging.getLogger(__name__)


class NumbersExhaustedError(Exception):
    """No number is left: all devices need new credentials."""


class SenderNumbers:
    """The numbers, kept in one small file."""

    def __init__(self, file: Path, random: Random) -> None:
        self._file = file
        self._random = random
        self._next: int | None = None
        self._reserved = 0

    def take(self) -> int:
        """Return the next number; raise OSError where a block cannot be reserved, NumbersExhaustedError at the end."""
        if self._next is None:
            self._next = self._reserved = self._begin()
        if self._next == self._reserved:
            self._reserve(self._reserved + BLOCK)
        number = self._next
        self._next += 1
        return number

    def _begin(self) -> int:
        """Return where this life begins; where nothing sound is on disk, that is anywhere."""
        try:
            used = _parsed(files.read_text(self._file))
        except FileNotFoundError:
            return self._random.randrange(START_MAX)
        except ValueError:
            _log.warning("coap: oscore numbers damaged file=%s action=begin-anywhere", self._file)
            return self._random.randrange(START_MAX)
        return used + self._random.randrange(max(1, (NUMBER_END - used) // LEAP_SHARE))

    def _reserve(self, end: int) -> None:
        if end > NUMBER_END:
            raise NumbersExhaustedError(f"{self._file}: no number is left; make new credentials, then remove this file")
        folder = self._file.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o750, parents=True)
            files.sync_folder(folder.parent)
        written = self._file.with_suffix(".tmp")
        with written.open("w") as file:
            file.write(_written(end))
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._file)
        files.sync_folder(folder)
        self._reserved = end


def _written(number: int) -> str:
    check = blake2b(str(number).encode(), digest_size=_CHECK_BYTES, person=b"oncegate-num-1").hexdigest()
    return f"{number} {check}\n"


def _parsed(text: str) -> int:
    """Return the number that was written; raise ValueError for any other text."""
    digits = text.partition(" ")[0]
    number = int(digits) if digits.isascii() and digits.isdigit() else -1
    if text != _written(number):
        raise ValueError("not what was written")
    return number
