"""Sealing: the oldest memtable becomes a segment on flash, in small steps between the commits.

The entries are written first, sorted, a share in each transaction; then the segment's own row, from which on it counts;
then the rows of `fingerprints` that it replaces are deleted. A crash before the segment's row leaves entries, which the
next attempt deletes, and those rows.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.filters import BloomFilter
from agent.store.fingerprints.index import FingerprintIndex
from agent.store.fingerprints.memtable import Memtable
from agent.store.fingerprints.segments import Origin, Segment
from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS, FINGERPRINT_BYTES
from agent.store.schema.database import GetConnection

SHARES = 32
"""In how many transactions a segment is written, each of them in steps."""
_SHARE_SHIFT = 3
ENTRIES_PER_STEP = 512
"""Read from the memtable, or added to the filter, in one step: sensors wait a few milliseconds for it."""
STEPS_PER_TURN_MAX = 16
"""How many steps follow each other where sealing lags behind the events, so that sensors are answered in between."""
ROWS_PER_STEP = 256
"""How many rows of `fingerprints` one step deletes."""
Begin = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Runs its block as one transaction."""


class Sealing:
    """Seals memtables in steps of one transaction at most; runs on the writer's thread alone."""

    def __init__(
        self,
        index: FingerprintIndex,
        connection: GetConnection,
        begin: Begin,
        service_ms: Callable[[], int],
        retransmission_ms: int = EXCHANGE_LIFETIME_MS,
    ) -> None:
        self._index = index
        self._connection = connection
        self._begin = begin
        self._service_ms = service_ms
        self._retransmission_ms = retransmission_ms
        self._steps: Iterator[None] | None = None
        self._sealed_events = 0
        """How many fingerprints of the memtable being sealed are done; those that are only read count half."""
        self._cleared_for = 1
        """The next segment's number when the rows were last cleared; nothing is to be cleared before the first."""
        self._cleared_to = 0

    @property
    def is_due(self) -> bool:
        return (
            self._steps is not None
            or self._index.full_memtable() is not None
            or self._index.next_number() != self._cleared_for
        )

    def catch_up(self) -> bool:
        """Do the next step, and more where the next memtable would be full before this one is sealed.

        With one step a cycle, memtables would accumulate while commits are large. Return False where none is due.
        """
        for _ in range(STEPS_PER_TURN_MAX):
            if not self.step():
                return False
            if self._steps is None or self._sealed_events >= self._index.count_behind_oldest():
                return True
        return True

    def step(self) -> bool:
        """Do the next step; return False where none is due. After an error the next call starts from the beginning."""
        steps, self._steps = self._steps, None
        if steps is None:
            if self._clear_rows():  # first: while events keep arriving, another memtable is always full
                return True
            memtable = self._index.full_memtable()
            if memtable is None:
                return False
            steps = self._seal(memtable)
        for _ in steps:
            self._steps = steps
            break
        return True

    def _seal(self, memtable: Memtable) -> Iterator[None]:
        """Write a memtable, a little in each step of the iterator."""
        number = self._index.sealing = self._index.next_number()
        while (left := next(segments.numbers(self._connection(), number), None)) is not None:
            with self._begin() as sql:
                segments.delete_entries(sql, left, segments.ROWS_PER_PIECE)
            yield
        bloom = BloomFilter(self._index.segment_events)
        runs = list(memtable.runs())
        first, last = min(first for first, _ in runs), max(last for _, last in runs)
        origin = Origin(first, memtable.earliest_ms())
        count = self._sealed_events = 0
        for places in _shares(memtable):
            before = self._sealed_events
            entries: list[bytes] = []
            for start in range(0, len(places), ENTRIES_PER_STEP):
                if start:
                    self._sealed_events = before + start // 2
                    yield
                entries += self._entries(memtable, origin, places[start : start + ENTRIES_PER_STEP])
            entries.sort()
            for start in range(0, len(entries), ENTRIES_PER_STEP):
                if start:
                    self._sealed_events = before + (len(places) + start) // 2
                    yield
                bloom.add(entries[start : start + ENTRIES_PER_STEP])
            count += len(entries)
            with self._begin() as sql:
                segments.insert_sealed(sql, number, origin, entries)
            self._sealed_events = before + len(places)
            yield
        _, _, latest_ms = memtable.run_at(len(memtable) - 1)
        segment = Segment(number, first, last, latest_ms, count)
        content = bloom.content()
        with self._begin() as sql:
            segments.insert_segment(sql, segment, content)
        self._index.replace_memtable(memtable, segment, content)

    def _entries(self, memtable: Memtable, origin: Origin, places: Sequence[int]) -> list[bytes]:
        """Return the packed entries of places, which ascend."""
        entries: list[bytes] = []
        end, shift, service_ms = memtable.run_at(places[0])
        for place in places:
            if place >= end:
                end, shift, service_ms = memtable.run_at(place)
            fingerprint, position = memtable.fingerprint_at(place), place + shift
            if fingerprint and self._index.is_remembered(position):
                entries.append(segments.pack_entry(origin, fingerprint, position, service_ms))
        return entries

    def _clear_rows(self) -> bool:
        """Delete rows that a segment has replaced, but keep their other contents as long as they are valid."""
        number = self._index.next_number()
        if number == self._cleared_for:
            return False
        keys_from_ms = self._service_ms() - self._retransmission_ms
        rows = fingerprint_rows.rows_above(self._connection(), self._cleared_to, ROWS_PER_STEP)
        done = [row for row in rows if not any(self._index.unsealed(row.first_position, row.fingerprints))]
        if not done:
            self._cleared_for, self._cleared_to = number, 0
            return False
        with self._begin() as sql:
            fingerprint_rows.clear_rows(sql, done, keys_from_ms)
        self._cleared_to = done[-1].first_position
        return True


def _shares(memtable: Memtable) -> list[array[int]]:
    """Return the places of a memtable in shares by the first bits of their fingerprints, in order of these."""
    # Arrays: as Python's integers the places would take ten megabytes for as long as the memtable is being sealed.
    shares = [array("I") for _ in range(SHARES)]
    for place, byte in enumerate(memtable.packed[: len(memtable) * FINGERPRINT_BYTES : FINGERPRINT_BYTES]):
        shares[byte >> _SHARE_SHIFT].append(place)
    return shares
