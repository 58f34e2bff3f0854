"""Reads the events that are still kept, with their states, a page at a time beside the running service."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agent.store.errors import DamagedEventError
from agent.store.port import Batch, LabelRange, StoredEvent
from agent.store.ranges import Ranges
from agent.store.read.events import Epochs, read_packed, stored
from agent.store.schema import gaps, tables
from agent.store.schema.database import Reads, snapshot

PAGE_POSITIONS: Final = 1_000
PAGE_BYTES: Final = 4 << 20
"""How much is read in one snapshot of the store, which ends before the page is returned."""

Matches = Callable[[bytes], bool]
"""Whether the event of a tail is wanted."""


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """An event that is still kept, and its state."""

    event: StoredEvent
    state: str


@dataclass(frozen=True, slots=True)
class DamagedEvents:
    """The labels of events that differ from what was written."""

    labels: tuple[LabelRange, ...]


def positions_of(connection: Reads, epoch: str) -> range | None:
    """Return the positions of an epoch's events, kept or not; None where there is no such epoch."""
    epochs = [(first, start.epoch) for first, start in tables.load_epochs(connection)]
    ends = [*(first for first, _ in epochs[1:]), tables.last_position(connection) + 1]
    return next((range(first, end) for (first, name), end in zip(epochs, ends, strict=True) if name == epoch), None)


def read_kept(connection: Reads, positions: range) -> Iterator[KeptEvent]:
    """Yield the events at some positions that are still kept and whole, in order."""
    yield from (entry for entry in read_all(connection, positions) if isinstance(entry, KeptEvent))


def read_all(
    connection: Reads, positions: range, matches: Matches | None = None
) -> Iterator[KeptEvent | DamagedEvents]:
    """Yield in order the kept events at some positions that match, and all damaged ones among them.

    Each page is of its own snapshot: an event that is purged before its page is read is left out.
    """
    first = positions.start
    while first < positions.stop:
        page, first = _read_page(connection, first, min(first + PAGE_POSITIONS, positions.stop) - 1, matches)
        yield from page
        if not page and tables.commit_end(connection, first) < first:  # a long gap, where a row's position is damaged
            first = tables.first_event(connection, after=first) or positions.stop


def _read_page(
    connection: Reads, first: int, last: int, matches: Matches | None
) -> tuple[Sequence[KeptEvent | DamagedEvents], int]:
    """Return one page, and the position after it."""
    page: list[KeptEvent | DamagedEvents] = []
    size = 0
    with snapshot(connection):
        epochs, states = Epochs.load(connection), States(connection)
        while first <= last:
            try:
                for packed in read_packed(connection, first, last):
                    if matches is None or matches(packed.tail):
                        page.append(KeptEvent(stored(packed, epochs), states.state(packed.position)))
                    first = packed.position + 1
                    size += len(packed.tail)
                    if size >= PAGE_BYTES:
                        return page, first
                break
            except DamagedEventError as damage:
                page.append(DamagedEvents(tuple(epochs.label_ranges(damage.first, damage.last))))
                first = damage.last + 1
    return page, last + 1


NEW, FORWARDED, PROCESSED, LOST = "new", "forwarded", "processed", "lost"


class States:
    """A snapshot of the states."""

    def __init__(self, connection: Reads) -> None:
        self.batches = tables.load_batches(connection)
        self.lost = Ranges((gap.first, gap.last) for gap in gaps.load(connection) if gap.count)
        self.done = Ranges([*self.lost, *tables.load_processed(connection)])
        """Positions that are processed or lost."""
        self._firsts = [batch.first for batch in self.batches]

    def state(self, position: int) -> str:
        """Return the state of a position."""
        if self.lost.end_of(position) is not None:
            return LOST
        if self.done.end_of(position) is not None:
            return PROCESSED
        return NEW if self.batch(position) is None else FORWARDED

    def batch(self, position: int) -> Batch | None:
        """Return the batch that waits for its receipt and holds a position."""
        at = bisect_right(self._firsts, position) - 1
        return self.batches[at] if at >= 0 and self.batches[at].last >= position else None
