"""Which segments may hold a fingerprint: the segments' Bloom filters, side by side in memory.

A filter only ever spares look-ups: what it lets through is looked up on flash, and a segment without one always is.
Eight filters lie across one byte array, a bit of each byte for each, so that one look asks eight of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct

BITS = 12
"""For each fingerprint; with HASHES of them, one look-up of 200 is for nothing."""
HASHES = 5
GROUP = 8
_PIECE_BYTES = 4_096
"""Of a filter, spread at once: as a whole it would take four times the memory of its group."""
_WORDS = Struct("<QQ")
_SPREAD = [[bytes((byte >> bit & 1) << column for byte in range(256)) for bit in range(8)] for column in range(GROUP)]
"""For a filter's column and a bit of its bytes: that bit, moved into the column."""
_CLEARED = [bytes(byte & ~(1 << column) for byte in range(256)) for column in range(GROUP)]


class Bloom:
    """The filter of one segment, as it grows and as it lies on flash."""

    def __init__(self, events_max: int) -> None:
        self._size = filter_bytes(events_max) * 8
        self.content = bytearray(filter_bytes(events_max))

    def add(self, fingerprints: Iterable[bytes]) -> None:
        """Let these through from now on."""
        content, size = self.content, self._size
        for fingerprint in fingerprints:
            place, step = _WORDS.unpack(fingerprint)
            for _ in range(HASHES):
                bit = place % size
                content[bit >> 3] |= 1 << (bit & 7)
                place += step | 1


class Filters:
    """The filters in memory, as many as the bound allows: the latest segments'."""

    def __init__(self, filter_bytes: int, bytes_max: int) -> None:
        self._size = filter_bytes * 8
        self._columns_max = max(bytes_max, 0) // self._size * GROUP
        self._groups: list[bytearray] = []
        self._columns: list[int | None] = []
        """The segment in each column, None where it is free."""
        self._unfiltered: set[int] = set()

    def bytes_held(self) -> int:
        """Count the bytes in memory."""
        return sum(len(group) for group in self._groups)

    def add(self, number: int, content: bytes) -> None:
        """Add a segment's filter; where there is no room, the oldest segment does without."""
        if len(content) * 8 != self._size or not self._columns_max:
            self._unfiltered.add(number)
            return
        column = self._free_column()
        group = self._groups[column // GROUP]
        for start in range(0, len(content), _PIECE_BYTES):
            piece = content[start : start + _PIECE_BYTES]
            spread = bytearray(len(piece) * 8)
            for bit, table in enumerate(_SPREAD[column % GROUP]):
                spread[bit::8] = piece.translate(table)
            there = slice(start * 8, start * 8 + len(spread))
            united = int.from_bytes(group[there], "little") | int.from_bytes(spread, "little")
            group[there] = united.to_bytes(len(spread), "little")
        self._columns[column] = number

    def drop(self, number: int) -> None:
        """Forget a segment."""
        self._unfiltered.discard(number)
        if number in self._columns:
            column = self._columns.index(number)
            self._columns[column] = None
            group = self._groups[column // GROUP]
            group[:] = group.translate(_CLEARED[column % GROUP])
            while self._columns and not any(self._columns[-GROUP:]):
                del self._columns[-GROUP:], self._groups[-1]

    def candidates(self, fingerprint: bytes) -> list[int]:
        """Give the segments that may hold a fingerprint, the latest first."""
        found = list(self._unfiltered)
        if self._groups:
            place, step = _WORDS.unpack(fingerprint)
            step, size = step | 1, self._size
            places = [(place + hash_ * step) % size for hash_ in range(HASHES)]
            for number, group in enumerate(self._groups):
                passed = 0xFF
                for at in places:
                    passed &= group[at]
                    if not passed:
                        break
                else:
                    found.extend(self._columns_of(number, passed))
        return sorted(found, reverse=True) if found else found

    def _columns_of(self, group: int, passed: int) -> Iterator[int]:
        """Give the segments of a group whose bits are set."""
        for column in range(GROUP):
            number = self._columns[group * GROUP + column]
            if passed >> column & 1 and number is not None:
                yield number

    def _free_column(self) -> int:
        if None not in self._columns and len(self._columns) < self._columns_max:
            self._groups.append(bytearray(self._size))
            self._columns.extend([None] * GROUP)
        if None not in self._columns:
            oldest = min(number for number in self._columns if number is not None)
            column = self._columns.index(oldest)
            self.drop(oldest)
            self._unfiltered.add(oldest)
            return column
        return self._columns.index(None)


def filter_bytes(events_max: int) -> int:
    """Give the size of a segment's filter."""
    return (events_max * BITS + 7) // 8
