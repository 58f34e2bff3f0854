"""What is given up: events that cannot be read any more, forgotten (segments.forget) and declared."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.store.checksum import checksum, verified
from agent.store.database import Reads

GAPS_MAX = 1_000
"""How many gaps are remembered one by one, the latest."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of positions; last = first - 1 stands for what may have followed the last event found."""

    first: int
    last: int
    reason: str
    declared: int = 0
    """Position of the event that says so; 0 until it is stored."""

    @property
    def count(self) -> int:
        """How many events are given up."""
        return self.last - self.first + 1


def insert(connection: sqlite3.Connection, gap: Gap) -> None:
    """Remember a gap, united with its predecessor; what an event in it declared has to be declared again."""
    first = gap.first
    for number, old in reversed(_numbered(connection)):
        if old.declared and not gap.first <= old.declared <= gap.last:
            continue
        if old.count and old.reason == gap.reason and old.last + 1 == first:
            connection.execute("DELETE FROM gaps WHERE number = ?", (number,))
            first = old.first
        elif old.declared:
            _write(connection, number, replace(old, declared=0))
    gap = replace(gap, first=first)
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM gaps").fetchone()[0]
    _write(connection, number, gap)
    connection.execute("DELETE FROM gaps WHERE number <= ?", (number - GAPS_MAX,))


def declare(connection: sqlite3.Connection, position: int) -> None:
    """Note that the event at this position has declared all gaps so far."""
    for number, gap in _numbered(connection):
        if not gap.declared:
            _write(connection, number, replace(gap, declared=position))


def retract(connection: sqlite3.Connection, first_position: int) -> None:
    """Note that no event from this position on declares anything: the commit that held them does not count."""
    for number, gap in _numbered(connection):
        if gap.declared >= first_position:
            _write(connection, number, replace(gap, declared=0))


def load(connection: Reads) -> list[Gap]:
    """Read the gaps in the order in which they were found."""
    return [gap for _, gap in _numbered(connection)]


def count_declarations(connection: Reads) -> int:
    """Count the commits that have declared gaps, of those still remembered."""
    count: int = connection.execute("SELECT count(DISTINCT declared) FROM gaps WHERE declared > 0").fetchone()[0]
    return count


def undeclared(gaps: Sequence[Gap]) -> list[Gap]:
    """Give the gaps that no event has declared yet, or whose event is given up itself."""
    return [gap for gap in gaps if not gap.declared]


def _numbered(connection: Reads) -> list[tuple[int, Gap]]:
    rows = connection.execute("SELECT number, first, last, reason, declared, checksum FROM gaps ORDER BY number")
    return [
        (number, Gap(first, last, reason, declared)) for number, first, last, reason, declared in verified("gaps", rows)
    ]


def _write(connection: sqlite3.Connection, number: int, gap: Gap) -> None:
    row = (number, gap.first, gap.last, gap.reason, gap.declared)
    connection.execute(
        "INSERT OR REPLACE INTO gaps (number, first, last, reason, declared, checksum) VALUES (?, ?, ?, ?, ?, ?)",
        (*row, checksum("gaps", row)),
    )
