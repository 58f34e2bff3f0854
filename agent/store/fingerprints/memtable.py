"""The latest fingerprints in memory: a hash table with open addressing, until it is full and sealed."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from agent.store.fingerprints.transient import FINGERPRINT_BYTES, FORGOTTEN, split

SLOT_BYTES: Final = 4
MOMENT_MS: Final = 10_000
"""The resolution of a sealed fingerprint's service time, sufficient for the retention."""


class Memtable:
    """Fingerprints with their positions and the service times of their commits; 24 to 32 bytes each.

    Where one is added again, its later position counts.
    """

    def __init__(self, events_max: int) -> None:
        self.free = events_max
        """How many more fingerprints it can hold."""
        # At least two slots for each, so that a miss reads two or three.
        self._mask = (1 << (2 * events_max - 1).bit_length()) - 1
        self._slots = memoryview(_pages((self._mask + 1) * SLOT_BYTES)).cast("I")
        self.packed = _pages(events_max * FINGERPRINT_BYTES)
        self._count = 0
        self._has_repeats = False
        self._places, self._positions, self._services_ms = array("q"), array("q"), array("q")
        """Where runs of consecutive positions begin, each of at most MOMENT_MS."""

    def __len__(self) -> int:
        return self._count

    @classmethod
    def bytes_max(cls, events_max: int) -> int:
        """Return the memory that a full memtable takes."""
        return events_max * FINGERPRINT_BYTES + (1 << (2 * events_max - 1).bit_length()) * SLOT_BYTES

    def add(self, first_position: int, service_ms: int, packed: bytes) -> None:
        """Add the fingerprints of consecutive positions; FORGOTTEN takes a place and is never found."""
        self._continue_run(first_position, service_ms)
        start = self._count
        end = start + len(packed) // FINGERPRINT_BYTES
        content = self.packed
        content[start * FINGERPRINT_BYTES : end * FINGERPRINT_BYTES] = packed
        self._count = end
        self.free -= end - start
        slots, mask = self._slots, self._mask
        for number, fingerprint in enumerate(split(packed), start + 1):
            if fingerprint == FORGOTTEN:
                continue
            slot = hash(fingerprint) & mask  # the hash is keyed in each process: no sender can choose a slot
            while other := slots[slot]:
                at = other * FINGERPRINT_BYTES
                if content[at - FINGERPRINT_BYTES : at] == fingerprint:
                    self._has_repeats = True
                    break
                slot = slot + 1 & mask
            slots[slot] = number

    def position(self, fingerprint: bytes) -> int | None:
        slots, mask, content = self._slots, self._mask, self.packed
        slot = hash(fingerprint) & mask
        while number := slots[slot]:
            at = number * FINGERPRINT_BYTES
            if content[at - FINGERPRINT_BYTES : at] == fingerprint:
                return self.position_at(number - 1)
            slot = slot + 1 & mask
        return None

    def position_at(self, place: int) -> int:
        run = bisect_right(self._places, place) - 1
        return self._positions[run] + place - self._places[run]

    def fingerprint_at(self, place: int) -> bytes:
        """Return the fingerprint at a place, empty where it does not count: FORGOTTEN, or added again later."""
        fingerprint = self.packed[place * FINGERPRINT_BYTES : (place + 1) * FINGERPRINT_BYTES]
        if fingerprint == FORGOTTEN or (self._has_repeats and self.position(fingerprint) != self.position_at(place)):
            return b""
        return fingerprint

    def run_at(self, place: int) -> tuple[int, int, int]:
        """Return a place's run: the place behind its end, its distance to positions, its service time.

        Its positions are consecutive, and were committed within MOMENT_MS of its service time.
        """
        run = bisect_right(self._places, place) - 1
        end = self._places[run + 1] if run + 1 < len(self._places) else self._count
        return end, self._positions[run] - self._places[run], self._services_ms[run]

    def committed_ms(self, position: int) -> int | None:
        """Return the service time of a position's commit, at most MOMENT_MS too early; None where it is not there."""
        run = bisect_right(self._positions, position) - 1
        if run < 0:
            return None
        end = self._places[run + 1] if run + 1 < len(self._places) else self._count
        return self._services_ms[run] if position - self._positions[run] < end - self._places[run] else None

    def earliest_ms(self) -> int:
        return min(self._services_ms)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last position of each run."""
        ends = [*self._places[1:], self._count]
        for place, position, end in zip(self._places, self._positions, ends, strict=False):
            yield position, position + end - place - 1

    def _continue_run(self, first_position: int, service_ms: int) -> None:
        if self._places:
            following = self._positions[-1] + self._count - self._places[-1]
            if following == first_position and 0 <= service_ms - self._services_ms[-1] < MOMENT_MS:
                return
        self._places.append(self._count)
        self._positions.append(first_position)
        self._services_ms.append(service_ms)


def _pages(size_bytes: int) -> mmap:
    """Return zeroed memory, of which untouched pages take none, and which is returned to the system at once."""
    return mmap(-1, size_bytes, MAP_PRIVATE | MAP_ANONYMOUS)
