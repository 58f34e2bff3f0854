"""Selects kept events by device and time of acceptance, without decoding those that are left out."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from agent.store.read.kept import PAGE_POSITIONS, DamagedEvents, KeptEvent, Matches, read_all
from agent.store.schema import tables
from agent.store.schema.database import Reads
from contract.record import read_header_fields

Entry = KeptEvent | DamagedEvents


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events are selected; damaged ones always are, since they may be among them."""

    device: str = "*"
    """A glob pattern on the device."""
    since: int | None = None
    """The earliest acceptance by the gateway's clock, in milliseconds since 1970 UTC."""

    def matcher(self) -> Matches | None:
        """Return what decides by an event's tail whether it is selected; None where all are."""
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
    """Return bytes that the tail of each event of the pattern's devices contains; none where that is uncertain."""
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
