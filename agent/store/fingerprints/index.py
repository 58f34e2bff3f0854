"""The index of fingerprints, bounded in memory: the latest exact in blocks, the older in segments on flash."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.store.fingerprints import segments
from agent.store.fingerprints.filters import Filters
from agent.store.fingerprints.memtable import Recent
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.ranges import Ranges

SEGMENT_EVENTS = 1 << 18
"""How many fingerprints one block holds, and so one segment."""
BLOCKS = 2
"""One that grows, and one that is being sealed."""


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """How much memory the index may take, and how large its blocks are."""

    memory_bytes: int = 64 << 20
    segment_events: int = SEGMENT_EVENTS

    @property
    def filter_bytes(self) -> int:
        """What is left for filters."""
        return self.memory_bytes - BLOCKS * Recent.bytes_max(self.segment_events)


DEFAULT_BOUNDS = IndexBounds()


class Fingerprints:
    """Which position has a fingerprint. All in it is committed; lives on the writer's thread.

    The blocks answer from memory and compare all 16 bytes. For the segments a filter says which of them to look at,
    and the look compares all 16 bytes, too.
    """

    def __init__(self, bounds: IndexBounds, connection: Callable[[], sqlite3.Connection]) -> None:
        self.connection = connection
        """Gives the connection to look up with."""
        self._bounds = bounds
        self._blocks: list[Recent] = []
        self._segments: dict[int, Segment] = {}
        self._filters = Filters(bounds.filter_bytes)
        self._sealed = Ranges()
        self._forgotten = Ranges()
        self._floor = 0
        """Positions below it are past their retention, and so are sealed ones committed before `_service_floor`."""
        self._service_floor = 0

    @property
    def segment_events(self) -> int:
        """How many fingerprints a segment has."""
        return self._bounds.segment_events

    def add(self, first_position: int, service: int, packed: bytes) -> None:
        """Take note of the fingerprints of consecutive positions, committed at a service time in ms."""
        at = 0
        while at < len(packed):
            block = self._open_block(first_position)
            piece = packed[at : at + block.free * FINGERPRINT_BYTES]
            block.add(first_position, service, piece)
            first_position += len(piece) // FINGERPRINT_BYTES
            at += len(piece)

    def position(self, fingerprint: bytes) -> int | None:
        """Return the position of the event that has a fingerprint; sqlite3.Error and StoreError where flash fails."""
        for block in reversed(self._blocks):
            position = block.position(fingerprint)
            if position is not None and self._counts(position):
                return position
        for number in self._filters.candidates(fingerprint):
            entry = segments.find(self.connection(), number, fingerprint)
            if entry is not None and entry.service >= self._service_floor and self._counts(entry.position):
                return entry.position
        return None

    def __contains__(self, fingerprint: bytes | None) -> bool:
        """Whether a fingerprint is remembered."""
        return fingerprint is not None and self.position(fingerprint) is not None

    def __len__(self) -> int:
        """Count what is held, forgotten ones included until they leave."""
        return sum(len(block) for block in self._blocks) + sum(segment.count for segment in self._segments.values())

    def forget(self, first: int, last: int) -> None:
        """Forget the fingerprints of a range of positions: what is given up may come again."""
        self._forgotten.add(first, last)

    def is_forgotten(self, position: int) -> bool:
        """Whether a position's fingerprint is forgotten, being given up or past its retention."""
        return not self._counts(position)

    def expire(self, floor: int, service: int) -> None:
        """Forget what lies below a position, and what is sealed and was committed before a service time."""
        self._floor = max(self._floor, floor)
        self._service_floor = max(self._service_floor, service)
        self._forgotten = Ranges((first, last) for first, last in self._forgotten if last >= self._floor)
        while self._blocks and max(last for _, last in self._blocks[0].runs()) < self._floor:
            del self._blocks[0]

    # Segments

    def full_block(self) -> Recent | None:
        """Return the oldest block, where it is full and has to be sealed."""
        block = self._blocks[0] if self._blocks else None
        return block if block is not None and (not block.free or len(self._blocks) > 1) else None

    def next_number(self) -> int:
        """Return the number of the next segment."""
        return max(self._segments, default=0) + 1

    def add_segment(self, segment: Segment, bloom: bytes) -> None:
        """Take note of a segment that is on flash."""
        self._segments[segment.number] = segment
        self._sealed.add(segment.first, segment.last)
        self._filters.add(segment.number, bloom)

    def replace_block(self, block: Recent, segment: Segment, bloom: bytes) -> None:
        """Replace a block by the segment that has it."""
        self.add_segment(segment, bloom)
        self._blocks = [other for other in self._blocks if other is not block]

    def drop_segment(self, number: int) -> None:
        """Forget a segment that is no longer on flash."""
        del self._segments[number]
        self._sealed = Ranges((segment.first, segment.last) for segment in self._segments.values())
        self._filters.drop(number)

    def segments(self) -> Iterator[Segment]:
        """Yield the segments in order."""
        yield from (self._segments[number] for number in sorted(self._segments))

    def unsealed(self, first_position: int, packed: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the runs, of consecutive positions' fingerprints, that no segment has."""
        position, end = first_position, first_position + len(packed) // FINGERPRINT_BYTES
        while position < end:
            sealed_to = self._sealed.end_of(position)
            if sealed_to is None:
                stop = min(self._sealed.first_above(position) or end, end)
                places = (position - first_position, stop - first_position)
                yield position, packed[places[0] * FINGERPRINT_BYTES : places[1] * FINGERPRINT_BYTES]
                position = stop
            else:
                position = sealed_to + 1

    def bytes_held(self) -> int:
        """Count the bytes that blocks and filters take."""
        return len(self._blocks) * Recent.bytes_max(self._bounds.segment_events) + self._filters.bytes_held()

    def _counts(self, position: int) -> bool:
        return position >= self._floor and self._forgotten.end_of(position) is None

    def _open_block(self, position: int) -> Recent:
        block = self._blocks[-1] if self._blocks else None
        if block is None or not block.free or position - block.position_at(0) >= segments.PART_MAX - block.free:
            block = Recent(self._bounds.segment_events)
            self._blocks.append(block)
        return block
