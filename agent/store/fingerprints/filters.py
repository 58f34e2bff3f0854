"""Selects the segments that may hold a fingerprint, by Bloom filters in memory as far as the bound allows.

A filter only saves look-ups: a fingerprint that passes is looked up on flash. So is any in a segment without filter
(decision 16). Where memory is short, filters are folded: the union of a filter's halves is a filter of half the size.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Final, Literal, NamedTuple

HASHES: Final = 8
"""How many bits of a filter each fingerprint sets."""
PLANE_FILTERS: Final = 8
SINGLE_FILTERS_MAX: Final = 3
"""How many filters are kept outside of planes; each is read by itself."""
_Word = Literal["Q", "I", "H", "B"]
_WORD_FORMATS: Final[Mapping[int, _Word]] = {8: "Q", 4: "I", 2: "H", 1: "B"} if sys.byteorder == "little" else {1: "B"}
"""By the size of a word, and so the planes of a group, the widest first; a word's lowest byte has to come first."""
_PIECE_BYTES: Final = 4_096
"""How much of a filter is spread at once: as a whole it would take four times the memory of its plane."""
_SPREAD: Final = [
    [bytes((byte >> bit & 1) << column for byte in range(256)) for bit in range(8)] for column in range(8)
]
"""By a filter's column in its plane and a bit of its bytes: a table that moves that bit into the column."""
_CLEARED: Final = [bytes(byte & ~(1 << column) for byte in range(256)) for column in range(8)]


class _Plane(NamedTuple):
    """The place of a plane: one byte in each word of a group."""

    group: int
    byte: int


class FilterSlices:
    """Bloom filters of one size, bit-sliced: one read of memory tests many; each is known by its segment's number.

    Eight filters make a plane: a byte for each of their places, and in it a bit for each filter. Planes are interleaved
    to words of up to eight bytes, since the cost of a look-up is the number of places in memory that it reads. Up to
    three filters for which no plane has a free column are kept as they are, since a plane takes the memory of eight.
    """

    def __init__(self, bits: int) -> None:
        self._bits_given = bits
        self._bits = bits
        """In memory: half of that once they are folded."""
        self._groups: list[memoryview] = []
        """Each is words over a bytearray; together they hold the columns in order."""
        self._columns: list[int | None] = []
        """The segment in each column, None where it is free."""
        self._single: dict[int, bytes] = {}
        """By segment: a filter that is in no plane."""

    def __iter__(self) -> Iterator[int]:
        yield from (number for number in self._columns if number is not None)
        yield from self._single

    def __contains__(self, number: int) -> bool:
        return number in self._columns or number in self._single

    def in_memory_bytes(self) -> int:
        return sum(group.nbytes for group in self._groups) + len(self._single) * (self._bits >> 3)

    def growth(self) -> int:
        """Return the bytes that one more filter would take."""
        if None in self._columns:
            return 0
        single_bytes = self._bits >> 3
        left = SINGLE_FILTERS_MAX - len(self._single)
        return single_bytes if left else self._bits - SINGLE_FILTERS_MAX * single_bytes

    def add(self, number: int, bits: bytes) -> None:
        if self._bits < self._bits_given:
            bits = bytes(_folded(bits))
        if None not in self._columns:
            self._single[number] = bits
            if len(self._single) <= SINGLE_FILTERS_MAX:
                return
            self._arrange([*self._planes(), None])
            self._columns.extend([None] * PLANE_FILTERS)
            while self._single:
                self._fill(*self._single.popitem())
        else:
            self._fill(number, bits)

    def _fill(self, number: int, bits: bytes) -> None:
        """Write a filter into a free column."""
        column = self._columns.index(None)
        content, start, words = self._bytes_of(self._planes()[column // PLANE_FILTERS])
        for first in range(0, len(bits), _PIECE_BYTES):
            piece = bits[first : first + _PIECE_BYTES]
            spread = bytearray(len(piece) * 8)
            for bit, table in enumerate(_SPREAD[column % PLANE_FILTERS]):
                spread[bit::8] = piece.translate(table)
            there = slice(first * 8 * words + start, (first * 8 + len(spread)) * words, words)
            united = int.from_bytes(content[there], "little") | int.from_bytes(spread, "little")
            content[there] = united.to_bytes(len(spread), "little")
        self._columns[column] = number

    def fold(self) -> None:
        """Halve all filters, once: a place and the one half a filter further become one, with the bits of both."""
        if self._bits == self._bits_given:
            self._bits //= 2
            for group, words in enumerate(self._groups):
                content, _, _ = self._bytes_of(_Plane(group, 0))
                self._groups[group] = memoryview(_folded(content)).cast(_WORD_FORMATS[words.itemsize])
            self._single = {number: bytes(_folded(bits)) for number, bits in self._single.items()}

    def drop(self, number: int) -> None:
        """Remove a segment's filter, and its plane where that is empty then."""
        if self._single.pop(number, None) is not None:
            return
        column = self._columns.index(number)
        self._columns[column] = None
        planes, at = self._planes(), column // PLANE_FILTERS
        there = slice(at * PLANE_FILTERS, (at + 1) * PLANE_FILTERS)
        if any(self._columns[there]):
            content, start, words = self._bytes_of(planes[at])
            content[start::words] = content[start::words].translate(_CLEARED[column % PLANE_FILTERS])
        else:
            del self._columns[there]
            self._arrange([*planes[:at], *planes[at + 1 :]])

    def candidates(self, place: int, step: int) -> list[int]:
        """Return the segments whose filters a fingerprint passes, given by its first place and its step."""
        found: list[int] = []
        bits, first = self._bits, 0
        start, stride = place % bits, step % bits  # before the loops: they have small numbers only
        for words in self._groups:
            passed, at = -1, start
            for _ in range(HASHES):
                passed &= words[at]
                if not passed:
                    break
                at += stride
                if at >= bits:
                    at -= bits
            else:
                found.extend(self._numbers(first, passed))
            first += words.itemsize * PLANE_FILTERS
        for number, content in self._single.items():
            at = start
            for _ in range(HASHES):
                if not content[at >> 3] >> (at & 7) & 1:
                    break
                at += stride
                if at >= bits:
                    at -= bits
            else:
                found.append(number)
        return found

    def _numbers(self, first: int, passed: int) -> Iterator[int]:
        """Yield the segments of the columns whose bits are set."""
        while passed:
            lowest = passed & -passed
            number = self._columns[first + lowest.bit_length() - 1]
            if number is not None:
                yield number
            passed ^= lowest

    def _planes(self) -> list[_Plane]:
        return [_Plane(group, byte) for group, words in enumerate(self._groups) for byte in range(words.itemsize)]

    def _bytes_of(self, plane: _Plane) -> tuple[bytearray, int, int]:
        """Return the buffer that holds a plane, where the plane starts in it, and how far apart its bytes are."""
        words = self._groups[plane.group]
        content: bytearray = words.obj  # type: ignore[assignment]  # `_interleaved` made it
        return content, plane.byte, words.itemsize

    def _arrange(self, planes: Sequence[_Plane | None]) -> None:
        """Regroup planes, of which None is an empty one; unchanged groups are kept."""
        groups: list[memoryview] = []
        at = 0
        for size, word in _WORD_FORMATS.items():
            while len(planes) - at >= size:
                chosen = planes[at : at + size]
                groups.append(self._kept(chosen) or self._interleaved(chosen, word))
                at += size
        self._groups = groups

    def _kept(self, planes: Sequence[_Plane | None]) -> memoryview | None:
        """Return the group of exactly these planes in this order; None where there is none."""
        for group, words in enumerate(self._groups):
            if list(planes) == [_Plane(group, byte) for byte in range(words.itemsize)]:
                return words
        return None

    def _interleaved(self, planes: Sequence[_Plane | None], word: _Word) -> memoryview:
        """Return a new group of planes."""
        made = bytearray(self._bits * len(planes))
        for byte, plane in enumerate(planes):
            if plane is not None:
                content, start, words = self._bytes_of(plane)
                made[byte :: len(planes)] = content[start::words]
        return memoryview(made).cast(word)


def _folded(content: bytes | bytearray) -> bytearray:
    """Return the union of the halves, made piece by piece to take little memory besides."""
    half = len(content) // 2
    made = bytearray(half)
    for start in range(0, half, _PIECE_BYTES):
        end = min(start + _PIECE_BYTES, half)
        lower, upper = content[start:end], content[half + start : half + end]
        united = int.from_bytes(lower, "little") | int.from_bytes(upper, "little")
        made[start:end] = united.to_bytes(end - start, "little")
    return made


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

    def in_memory_bytes(self) -> int:
        return sum(slices.in_memory_bytes() for slices in self._slices.values())

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
        return growth > 0 and self.in_memory_bytes() + growth > self._bytes_max

    def drop(self, number: int) -> None:
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
