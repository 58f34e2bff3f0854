"""What is given up: events that cannot be read any more, forgotten (segments.forget) and declared."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.store.ranges import Ranges
from agent.store.schema.checksum import checksum, verified
from agent.store.schema.database import Reads

GAPS_MAX = 1_000
"""How many declared gaps are remembered one by one, the latest; of what no event has declared yet, all are."""


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


def insert(connection: sqlite3.Connection, *found: Gap) -> None:
    """Remember gaps, each united with its predecessor; what an event in them declared has to be declared again.

    What is waiting to be declared already is not remembered twice: a transaction of unknown outcome is run again.
    """
    given_up = Ranges((gap.first, gap.last) for gap in found if gap.count)
    known = dict(_numbered(connection))
    for number, old in known.items():
        if old.declared and given_up.end_of(old.declared) is not None:
            known[number] = replace(old, declared=0)
            _write(connection, number, known[number])
    waiting = {number: old for number, old in known.items() if old.count and not old.declared}
    covered = Ranges((old.first, old.last) for old in waiting.values())
    ends = {(old.last, old.reason): number for number, old in waiting.items()}
    added = [gap for gap in found if not gap.count or (covered.end_of(gap.first) or 0) < gap.last]
    for number, gap in enumerate(added, max(known, default=0) + 1):
        before = ends.pop((gap.first - 1, gap.reason), None) if gap.count else None
        known[number] = gap if before is None else replace(gap, first=known[before].first)
        if before is not None:
            connection.execute("DELETE FROM gaps WHERE number = ?", (before,))
        if gap.count:
            ends[gap.last, gap.reason] = number
        _write(connection, number, known[number])


def declare(connection: sqlite3.Connection, position: int) -> None:
    """Note that the event at this position has declared all gaps so far; forget the oldest of those declared before.

    Those that it declares itself stay, however many they are: its commit may turn out not to count.
    """
    connection.execute(
        "DELETE FROM gaps WHERE declared > 0 AND number <= (SELECT max(number) FROM gaps) - ?", (GAPS_MAX,)
    )
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
    """Return the gaps that no event has declared yet, or whose event is given up itself."""
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
