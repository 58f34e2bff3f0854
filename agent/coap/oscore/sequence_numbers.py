"""The gateway's sender sequence numbers under OSCORE: none is ever used twice (RFC 8613 section 7.2.1, B.1.1).

All contexts count from the same number: they have different keys, and one flush reserves numbers for all of them. The
numbers are reserved on disk in blocks, before the first of a block is used. A store that was restored from a backup, or
a cloned card, would repeat earlier numbers; so each process first skips a random distance (decision 13).
"""

import logging
import os
from hashlib import blake2b
from pathlib import Path
from random import Random
from threading import Lock

from agent.coap.errors import CoapError
from agent.config import files

NUMBER_END = (1 << 40) - 1
"""The first number that the protocol does not allow (RFC 8613 section 7.2.1)."""
BLOCK = 16_384
"""Numbers reserved at once, by two flushes that answers wait for: at the rate of `Tuning.protected_per_second`, once in
55 s. Each start abandons the rest of a block, which is little compared with the skipped distance."""
SHORT_END = 1 << 32
"""The first number that takes five bytes."""
SHORT_LEAPS_END = SHORT_END - (1 << 30)
"""From here on, distances within four bytes would be too short."""
SHORT_LEAP_SHARE, LEAP_SHARE = 256, 1_024
"""The skipped distance is below this fraction of the remaining numbers, so restarts never use them up."""
START_MAX = 1 << 31
_CHECK_BYTES = 4

_log = logging.getLogger(__name__)


class NoNumberError(CoapError):
    """No number can be reserved now; or none is left, and all devices need new credentials."""


class SenderNumbers:
    """The numbers of all contexts, reserved in one small file."""

    def __init__(self, file: Path, random: Random) -> None:
        self._file = file
        self._random = random
        self._reserving = Lock()
        self._first: int | None = None
        """The first number of this process."""
        self._reserved = 0
        """The end of the numbers reserved on disk."""
        self._problem = "none is reserved yet"
        """Why none is reserved, where none is."""

    def covers(self, place: int) -> bool:
        """Whether the number at this place, counted from the first of the process, is reserved."""
        return self._first is not None and self._first + place < self._reserved

    def at(self, place: int) -> int:
        """Return the number at a place; raise NoNumberError where it is not reserved."""
        if self._first is None or not self.covers(place):
            raise NoNumberError(self._problem)
        return self._first + place

    def reserve(self, place: int) -> None:
        """Reserve the numbers up to a place, and a block; blocks on the disk.

        May be called in any thread. Raise NoNumberError where that fails.
        """
        with self._reserving:
            if self.covers(place):
                return
            try:
                if self._first is None:
                    self._first = self._begin()
                end = self._first + place + BLOCK
                self._write(end)
            except (OSError, NoNumberError) as error:
                self._problem = str(error)
                raise NoNumberError(self._problem) from error
            self._reserved = end

    def _begin(self) -> int:
        """Return the first number of this process; a random one where the file is missing or damaged."""
        try:
            used = _parsed(files.read_text(self._file))
        except FileNotFoundError:
            return self._random.randrange(START_MAX)
        except ValueError:
            _log.warning("oscore=damaged file=%s effect=%r", self._file, "numbers continue at a random one")
            return self._random.randrange(START_MAX)
        if used < SHORT_LEAPS_END:
            return used + self._random.randrange((SHORT_END - used) // SHORT_LEAP_SHARE)
        return used + self._random.randrange(max(1, (NUMBER_END - used) // LEAP_SHARE))

    def _write(self, end: int) -> None:
        """Write to disk that all numbers below this one may be used."""
        if end > NUMBER_END:
            raise NoNumberError(f"{self._file}: no number is left; make new credentials, then remove this file")
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


class Sequence:
    """The numbers of one context; `reserve` may be called in any thread, `take` in one only."""

    def __init__(self, numbers: SenderNumbers) -> None:
        self._numbers = numbers
        self._taken = 0

    @property
    def has_some(self) -> bool:
        return self._numbers.covers(self._taken)

    def next_number(self) -> int:
        """Return the next number; raise NoNumberError where none is reserved."""
        number = self._numbers.at(self._taken)
        self._taken += 1
        return number

    def reserve(self) -> None:
        """Reserve a block where no number is left; blocks on the disk. Raise NoNumberError."""
        self._numbers.reserve(self._taken)


def _written(number: int) -> str:
    check = blake2b(str(number).encode(), digest_size=_CHECK_BYTES, person=b"oncegate-num-1").hexdigest()
    return f"{number} {check}\n"


def _parsed(text: str) -> int:
    """Return the number of a written text; raise ValueError for any other text."""
    digits = text.partition(" ")[0]
    number = int(digits) if digits.isascii() and digits.isdigit() else -1
    if text != _written(number):
        raise ValueError("not a number file")
    return number
