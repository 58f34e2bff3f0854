"""Sealing: the oldest block of fingerprints becomes a segment on flash, in small steps between the commits.

First its entries, sorted, a share in each step; then the segment's own row, from which on it counts; then the rows of
the log that it replaces are deleted. A crash before that row leaves entries that the next try deletes, and the log.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Iterable, Iterator

from agent.store.fingerprints import rows as known_rows
from agent.store.fingerprints import segments
from agent.store.fingerprints.filters import Bloom
from agent.store.fingerprints.index import Fingerprints
from agent.store.fingerprints.memtable import Recent
from agent.store.fingerprints.segments import Entry, Segment
from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS, FINGERPRINT_BYTES, FORGOTTEN

SHARES = 64
"""Into how many transactions the writing of a segment is divided, and each of them into steps."""
_SHARE_SHIFT = 2
ENTRIES_PER_STEP = 512
"""Read from the block, or added to the filter, in one step: a few milliseconds for which sensors wait."""
ROWS_PER_STEP = 256
"""Of the log, deleted in one step."""
Transact = Callable[[Callable[[sqlite3.Connection], None]], None]


class Sealing:
    """Runs on the writer's thread alone; every step is one transaction, or none."""

    def __init__(
        self,
        fingerprints: Fingerprints,
        transact: Transact,
        service: Callable[[], int],
        proof_ms: int = EXCHANGE_LIFETIME_MS,
    ) -> None:
        self._fingerprints = fingerprints
        self._transact = transact
        self._service = service
        self._proof_ms = proof_ms
        self._steps: Iterator[None] | None = None
        self._cleared_for = 1
        """The next segment's number when the log was last cleared; nothing is to be cleared before the first."""
        self._cleared_to = 0

    def step(self) -> bool:
        """Do the next step; False where nothing is to be done. An error ends the try, and the next call begins anew."""
        steps, self._steps = self._steps, None
        if steps is None:
            block = self._fingerprints.full_block()
            if block is None:
                return self._clear_log()
            steps = self._seal(block)
        for _ in steps:
            self._steps = steps
            break
        return True

    def _seal(self, block: Recent) -> Iterator[None]:
        """Write a block, a little in each step of the iterator."""
        number = self._fingerprints.next_number()
        for left in list(segments.numbers(self._fingerprints.connection(), number)):
            self._transact(lambda connection, left=left: segments.delete_segment(connection, left))  # type: ignore[misc]
            yield
        bloom = Bloom(self._fingerprints.segment_events)
        count = 0
        for places in _shares(block):
            found: list[Entry] = []
            for start in range(0, len(places), ENTRIES_PER_STEP):
                if start:
                    yield
                found.extend(self._entries(block, places[start : start + ENTRIES_PER_STEP]))
            entries = segments.sorted_entries(found)
            for start in range(0, len(entries), ENTRIES_PER_STEP):
                if start:
                    yield
                bloom.add(entry.fingerprint for entry in entries[start : start + ENTRIES_PER_STEP])
            count += len(entries)
            self._transact(lambda connection, entries=entries: segments.insert_sealed(connection, number, entries))  # type: ignore[misc]
            yield
        runs = list(block.runs())
        first, last = min(first for first, _ in runs), max(last for _, last in runs)
        segment = Segment(number, first, last, block.service_at(len(block) - 1), count)
        content = bloom.content()
        self._transact(lambda connection: segments.insert_segment(connection, segment, content))
        self._fingerprints.replace_block(block, segment, content)

    def _entries(self, block: Recent, places: Iterable[int]) -> Iterator[Entry]:
        for place in places:
            fingerprint = bytes(block.packed[place * FINGERPRINT_BYTES : (place + 1) * FINGERPRINT_BYTES])
            position = block.position_at(place)
            # Of two in one block the later counts: the earlier is given up, or past its retention.
            counts = fingerprint != FORGOTTEN and block.position(fingerprint) == position
            if counts and not self._fingerprints.is_forgotten(position):
                yield Entry(fingerprint, position, block.service_at(place))

    def _clear_log(self) -> bool:
        """Delete rows of the log that a segment has replaced; what else they tell stays as long as it counts."""
        number = self._fingerprints.next_number()
        if number == self._cleared_for:
            return False
        connection = self._fingerprints.connection()
        proven_from = self._service() - self._proof_ms
        rows = known_rows.rows_above(connection, self._cleared_to, ROWS_PER_STEP)
        done = [row for row in rows if not any(self._fingerprints.unsealed(row.first_position, row.fingerprints))]
        if not done:
            self._cleared_for, self._cleared_to = number, 0
            return False
        self._transact(lambda writing: known_rows.clear_rows(writing, done, proven_from))
        self._cleared_to = done[-1].first_position
        return True


def _shares(block: Recent) -> Iterator[array[int]]:
    """Yield the places of a block by the first bits of their fingerprints, in the order of those."""
    # Arrays: as numbers of Python's own a block's places would take ten megabytes for as long as it is being sealed.
    shares = [array("I") for _ in range(SHARES)]
    for place, byte in enumerate(block.packed[: len(block) * FINGERPRINT_BYTES : FINGERPRINT_BYTES]):
        shares[byte >> _SHARE_SHIFT].append(place)
    for number in range(SHARES):
        yield shares[number]
