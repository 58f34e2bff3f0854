"""The index of fingerprints, bounded in memory: the latest in memtables, the older in segments on flash."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.store.fingerprints import segments
from agent.store.fingerprints.filters import Filters
from agent.store.fingerprints.memtable import Memtable
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.ranges import Ranges
from agent.store.schema.database import GetConnection

SEGMENT_EVENTS: Final = 1 << 17
"""How many fingerprints one memtable holds, and so one segment."""
MEMTABLES: Final = 2
"""One that grows, and one that is being sealed."""


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """How much memory the index may take, and how large its memtables are."""

    memory_bytes: int = 64 << 20
    segment_events: int = SEGMENT_EVENTS

    @property
    def filter_bytes(self) -> int:
        """The remaining memory, for filters."""
        return self.memory_bytes - MEMTABLES * Memtable.bytes_max(self.segment_events)


DEFAULT_BOUNDS: Final = IndexBounds()


class FingerprintIndex:
    """Maps committed fingerprints to positions; runs on the writer's thread alone.

    Memtables are searched in memory; filters select the segments to search. Both compare all 16 bytes.
    """

    def __init__(self, bounds: IndexBounds) -> None:
        self._bounds = bounds
        self._memtables: list[Memtable] = []
        self._segments: dict[int, Segment] = {}
        self._filters = Filters(bounds.filter_bytes)
        self._sealed = Ranges()
        self._forgotten = Ranges()
        self._floor = 0
        """Lower positions are past their retention, as are sealed ones from before `_service_floor_ms`."""
        self._service_floor_ms = 0
        self.sealed_events = 0
        """How many fingerprints the segments have."""
        self.sealing: int | None = None
        """The number of the segment that is being written: its entries are on flash before it counts."""

    @property
    def segment_events(self) -> int:
        return self._bounds.segment_events

    def add(self, first_position: int, service_ms: int, packed: bytes) -> None:
        """Add the fingerprints of consecutive positions, committed at a service time."""
        at = 0
        while at < len(packed):
            memtable = self._open_memtable(first_position)
            piece = packed[at : at + memtable.free * FINGERPRINT_BYTES]
            memtable.add(first_position, service_ms, piece)
            first_position += len(piece) // FINGERPRINT_BYTES
            at += len(piece)

    def position(self, fingerprint: bytes, connection: GetConnection) -> int | None:
        """Return the position of the event that has a fingerprint, None where none has.

        `connection` looks segments up; raise sqlite3.Error or StoreError where that fails.
        """
        for memtable in reversed(self._memtables):
            position = memtable.position(fingerprint)
            if position is not None and self.is_remembered(position):
                return position
        for number in self._filters.candidates(fingerprint):
            entry = segments.find(connection(), number, fingerprint)
            if entry is not None and entry.service_ms >= self._service_floor_ms and self.is_remembered(entry.position):
                return entry.position
        return None

    def forget(self, first: int, last: int) -> None:
        """Forget the fingerprints of a range of positions: the sensor may send those events again."""
        self._forgotten.add(first, last)

    def is_remembered(self, position: int) -> bool:
        """Whether a position's fingerprint is not forgotten because of a gap or the retention."""
        return position >= self._floor and self._forgotten.end_of(position) is None

    def committed_ms(self, position: int) -> int | None:
        """Return the service time by which a position was committed; None where that is past the retention.

        Of a sealed one it is that of its segment's last commit.
        """
        for memtable in reversed(self._memtables):
            if (moment := memtable.committed_ms(position)) is not None:
                return moment
        sealed = (one.service_ms for one in self._segments.values() if one.first <= position <= one.last)
        return max(sealed, default=None)

    def expire(self, floor: int, service_ms: int) -> None:
        """Forget fingerprints below a position, and sealed ones that were committed before a service time."""
        self._floor = max(self._floor, floor)
        self._service_floor_ms = max(self._service_floor_ms, service_ms)
        self._forgotten = Ranges((first, last) for first, last in self._forgotten if last >= self._floor)
        while self._memtables and max(last for _, last in self._memtables[0].runs()) < self._floor:
            del self._memtables[0]

    # Segments

    def full_memtable(self) -> Memtable | None:
        """Return the oldest memtable where it is full and has to be sealed."""
        oldest = self._memtables[0] if self._memtables else None
        return oldest if oldest is not None and (not oldest.free or len(self._memtables) > 1) else None

    def count_behind_oldest(self) -> int:
        """Count the fingerprints in all memtables but the oldest."""
        return sum(len(memtable) for memtable in self._memtables[1:])

    def next_number(self) -> int:
        return max(self._segments, default=0) + 1

    def add_segment(self, segment: Segment, bloom: bytes) -> None:
        self._segments[segment.number] = segment
        self.sealed_events += segment.count
        self._sealed.add(segment.first, segment.last)
        self._filters.add(segment.number, bloom)

    def replace_memtable(self, sealed: Memtable, segment: Segment, bloom: bytes) -> None:
        """Replace a memtable by the segment into which it was sealed."""
        self.add_segment(segment, bloom)
        self.sealing = None
        self._memtables = [memtable for memtable in self._memtables if memtable is not sealed]

    def drop_segment(self, number: int) -> None:
        """Remove a segment that is no longer on flash."""
        self.sealed_events -= self._segments.pop(number).count
        self._sealed = Ranges((segment.first, segment.last) for segment in self._segments.values())
        self._filters.drop(number)

    def has_segment(self, number: int) -> bool:
        """Whether a segment counts, or is being written."""
        return number in self._segments or number == self.sealing

    def segments(self) -> Iterator[Segment]:
        yield from (self._segments[number] for number in sorted(self._segments))

    def unsealed(self, first_position: int, packed: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (first position, fingerprints) for each run not yet sealed."""
        end = first_position + len(packed) // FINGERPRINT_BYTES
        for first, last in self._sealed.holes(first_position, end - 1):
            places = (first - first_position, last + 1 - first_position)
            yield first, packed[places[0] * FINGERPRINT_BYTES : places[1] * FINGERPRINT_BYTES]

    def in_memory_bytes(self) -> int:
        """Return how many bytes memtables and filters take."""
        return len(self._memtables) * Memtable.bytes_max(self._bounds.segment_events) + self._filters.in_memory_bytes()

    def _open_memtable(self, position: int) -> Memtable:
        latest = self._memtables[-1] if self._memtables else None
        if latest is None or not latest.free or position - latest.position_at(0) >= segments.PART_MAX - latest.free:
            latest = Memtable(self._bounds.segment_events)
            self._memtables.append(latest)
        return latest
