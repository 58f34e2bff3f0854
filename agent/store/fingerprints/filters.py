"""Selects the segments that may hold a fingerprint, by Bloom filters in memory as far as the bound allows.

A filter only saves look-ups: a fingerprint that passes is looked up on flash. So is any in a segment without filter.
Where memory is short, filters are folded: the union of a filter's halves is a filter of half the size.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from agent.store.fingerprints.filter_slices import HASHES, FilterSlices

BITS: Final = 24
"""For each fingerprint. With HASHES of them set, the rate of false positives is 1:24,000; in a folded filter, 1:320."""
_WORDS: Final = Struct("<QQ")
"""A fingerprint's first place in a filter, and the step to the next: it is a hash already and needs no other."""


class BloomFilter:
    """The Bloom filter of one segment, while it is being built."""

    def __init__(self, events_max: int) -> None:
        self._bits = bytearray(filter_bytes(events_max))

    def add(self, entries: Iterable[bytes]) -> None:
        """Add the fingerprints with which these entries begin; they pass the filter from now on."""
        bits, size = self._bits, len(self._bits) * 8
        for entry in entries:
            place, step = _WORDS.unpack_from(entry)
            bit, stride = place % size, (step | 1) % size  # before the loop: it has small numbers only
            for _ in range(HASHES):
                bits[bit >> 3] |= 1 << (bit & 7)
                bit += stride
                if bit >= size:
                    bit -= size

    def content(self) -> bytes:
        """Return the filter's bits, as they are stored."""
        return bytes(self._bits)


class Filters:
    """The filters of the latest segments, as many as the bound on memory allows."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._slices: dict[int, FilterSlices] = {}
        """By size in bits: filters of one size are bit-sliced together."""
        self._unfiltered: set[int] = set()

    def held_bytes(self) -> int:
        """Return how many bytes the filters take."""
        return sum(slices.held_bytes() for slices in self._slices.values())

    def add(self, number: int, bits: bytes) -> None:
        """Add a segment's stored filter; where memory is short, the oldest segments go without one."""
        slices = self._slices.setdefault(len(bits) * 8, FilterSlices(len(bits) * 8))
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
        return growth > 0 and self.held_bytes() + growth > self._bytes_max

    def drop(self, number: int) -> None:
        """Remove a segment."""
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
            found += slices.candidates(place, step | 1)
        found.sort(reverse=True)
        return found


def filter_bytes(events_max: int) -> int:
    """Return the size of a segment's filter that is not folded: an even number, since folding halves it."""
    return -(-events_max * BITS // 16) * 2
