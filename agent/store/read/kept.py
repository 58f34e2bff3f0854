"""Reads the events that are still kept, with their states, a page at a time beside the running service.

They are selected by device and time of acceptance, without decoding those that are left out.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from agent.store.errors import DamagedEventError
from agent.store.port import LabelRange, StoredEvent
from agent.store.ranges import Coverage, Ranges
from agent.store.read.events import Epochs, labelled, read_packed
from agent.store.schema import gaps, tables
from agent.store.schema.database import Reads, snapshot
from contract.record import read_header_fields

PAGE_POSITIONS: Final = 1_000
PAGE_BYTES: Final = 4 << 20
"""How much is read in one snapshot of the store, which ends before the page is returned (decision 33)."""

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


Entry = KeptEvent | DamagedEvents


def positions_of(connection: Reads, epoch: str) -> range | None:
    """Return the positions of an epoch's events, kept or not; None where there is no such epoch."""
    epochs = [(first, start.epoch) for first, start in tables.load_epochs(connection)]
    ends = [*(first for first, _ in epochs[1:]), tables.last_position(connection) + 1]
    return next((range(first, end) for (first, name), end in zip(epochs, ends, strict=True) if name == epoch), None)


def read_kept(connection: Reads, positions: range) -> Iterator[KeptEvent]:
    """Yield the events at some positions that are still kept and whole, in order."""
    yield from (entry for entry in read_all(connection, positions) if isinstance(entry, KeptEvent))


def read_all(connection: Reads, positions: range, matches: Matches | None = None) -> Iterator[Entry]:
    """Yield in order the kept events at some positions that match, and all damaged ones among them.

    Each page is of its own snapshot: an event that is purged before its page is read is left out.
    """
    first = positions.start
    while first < positions.stop:
        page, first = _read_page(connection, first, min(first + PAGE_POSITIONS, positions.stop) - 1, matches)
        yield from page
        if not page and tables.commit_end(connection, first) < first:  # a long gap, where a row's position is damaged
            first = tables.first_event(connection, after=first) or positions.stop


def _read_page(connection: Reads, first: int, last: int, matches: Matches | None) -> tuple[Sequence[Entry], int]:
    """Return one page, and the position after it."""
    page: list[Entry] = []
    size = 0
    with snapshot(connection):
        epochs, states = Epochs.load(connection), States(connection)
        while first <= last:
            try:
                for packed in read_packed(connection, first, last):
                    if matches is None or matches(packed.tail):
                        (event,) = labelled([packed], epochs)
                        page.append(KeptEvent(event, states.state(event.position)))
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
        self.lost = Ranges((gap.first, gap.last) for gap in gaps.load(connection) if gap.count)
        self.coverage = Coverage(tables.load_batches(connection), [*self.lost, *tables.load_processed(connection)])
        """What is lost is covered as processed, too."""

    def state(self, position: int) -> str:
        if self.lost.end_of(position) is not None:
            return LOST
        if self.coverage.processed.end_of(position) is not None:
            return PROCESSED
        return NEW if self.coverage.batch(position) is None else FORWARDED


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events are selected; damaged ones always are, since they may be among them."""

    device: str = "*"
    """A glob pattern on the device."""
    since: int | None = None
    """The earliest acceptance by the gateway's clock, in milliseconds since 1970 UTC."""

    def matcher(self) -> Matches | None:
        """Return a predicate on the tails of selected events; None where all are selected."""
        if self == ALL:
            return None
        pattern, since = unicodedata.normalize("NFC", self.device), self.since  # as the names of events are
        literal = _literal(pattern)

        def matches(tail: bytes) -> bool:
            if literal not in tail:  # faster than reading the header's fields
                return False
            fields = read_header_fields(tail)
            return (since is None or fields.received >= since) and fnmatchcase(fields.device, pattern)

        return matches


def _literal(pattern: str) -> bytes:
    """Return bytes that every matching event's tail contains; empty if unknown."""
    literal = max(re.split(r"[*?]", pattern.partition("[")[0]), key=len)
    plain = literal.isascii() and literal.isprintable() and not {'"', "\\"} & set(literal)
    return literal.encode() if plain else b""


ALL = Selection()


def select_between(connection: Reads, after: int, last: int, selection: Selection) -> Iterator[Entry]:
    """Yield the selected events after a position up to another, in order."""
    positions = range(max(tables.first_event(connection) or 1, after + 1), last + 1)
    yield from read_all(connection, positions, selection.matcher())


def select_latest(connection: Reads, last: int, limit: int, selection: Selection, first: int = 1) -> Iterator[Entry]:
    """Yield the latest of the selected events up to a position, in order.

    The store is read backwards until there are enough, or down to position `first`.
    """
    start = max(tables.first_event(connection) or 1, first)
    if selection == ALL:
        yield from read_all(connection, range(max(start, last - limit + 1), last + 1))
        return
    pages: list[list[Entry]] = []
    matches = selection.matcher()
    missing = limit
    while last >= start and missing > 0:
        page_start = max(start, last - PAGE_POSITIONS + 1)
        page = list(read_all(connection, range(page_start, last + 1), matches))
        pages.append(page[-missing:])
        missing -= len(page)
        last = tables.commit_end(connection, page_start - 1)
    for page in reversed(pages):
        yield from page
