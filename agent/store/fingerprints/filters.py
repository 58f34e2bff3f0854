"""Which segments may hold a fingerprint, by the segments' Bloom filters, in memory as far as the bound allows.

A filter only ever spares look-ups: what it lets through is looked up on flash, and a segment without one always is.
Where memory is short, filters are folded: their halves laid over one another are a filter, too, of half the size.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from agent.store.fingerprints.filter_slices import HASHES, Slices

BITS = 24
"""For each fingerprint; with HASHES of them one look-up of 24,000 is for nothing, in a folded filter one of 320."""
_WORDS = Struct("<QQ")
"""A fingerprint's first place in a filter, and the step to the next: it is a hash already, and needs no other."""


class Bloom:
    """The filter of one segment, as it grows."""

    def __init__(self, events_max: int) -> None:
        self._bits = bytearray(filter_bytes(events_max))

    def add(self, fingerprints: Iterable[bytes]) -> None:
        """Add fingerprints, which it lets through from now on."""
        bits, size = self._bits, len(self._bits) * 8
        for fingerprint in fingerprints:
            place, step = _WORDS.unpack(fingerprint)
            for _ in range(HASHES):
                bit = place % size
                bits[bit >> 3] |= 1 << (bit & 7)
                place += step | 1

    def content(self) -> bytes:
        """Return the filter's bits, as they are stored."""
        return bytes(self._bits)


class Filters:
    """The filters in memory, as many as the bound allows: the latest segments'."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._slices: dict[int, Slices] = {}
        """By size in bits: filters of one size lie side by side."""
        self._unfiltered: set[int] = set()

    def bytes_held(self) -> int:
        """Count the bytes in memory."""
        return sum(slices.bytes_held() for slices in self._slices.values())

    def add(self, number: int, bits: bytes) -> None:
        """Add a segment's stored filter; where memory is short, the oldest segments go without one."""
        slices = self._slices.setdefault(len(bits) * 8, Slices(len(bits) * 8))
        if self._lacks(slices.growth()):
            for others in self._slices.values():
                others.fold()
        while self._lacks(slices.growth()):
            filtered = [number for slices in self._slices.values() for number in slices]
            if not filtered:
                self._unfiltered.add(number)
                return
            self.drop(min(filtered))
            self._unfiltered.add(min(filtered))
        slices.add(number, bits)

    def _lacks(self, growth: int) -> bool:
        return growth > 0 and self.bytes_held() + growth > self._bytes_max

    def drop(self, number: int) -> None:
        """Forget a segment."""
        self._unfiltered.discard(number)
        for slices in self._slices.values():
            if number in slices:
                slices.drop(number)

    def candidates(self, fingerprint: bytes) -> list[int]:
        """Return the segments that may hold a fingerprint, the latest first."""
        if not self._slices:
            return []
        found = list(self._unfiltered)
        place, step = _WORDS.unpack(fingerprint)
        for slices in self._slices.values():
            found.extend(slices.candidates(place, step | 1))
        return sorted(found, reverse=True) if found else found


def filter_bytes(events_max: int) -> int:
    """Return the size of a segment's filter that is not folded: an even number, since folding halves it."""
    return -(-events_max * BITS // 16) * 2
