"""The SQL of the gaps: ranges of positions whose events are given up."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.store.format.packing import checksum, verified
from agent.store.ranges import Ranges
from agent.store.schema.database import Reads

GAPS_MAX = 1_000
"""How many declared gaps are kept, the latest; gaps that no event has declared yet are all kept."""
_COLUMNS = "number, first, last, reason, declared, checksum"


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of positions; last = first - 1 means events that may have followed the last one found."""

    first: int
    last: int
    reason: str
    declared: int = 0
    """Position of the event that declares it; 0 until that is stored."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def insert(connection: sqlite3.Connection, *found: Gap) -> None:
    """Record gaps, each merged with its predecessor; a gap whose declaration is in them is declared again.

    A gap that waits for its declaration is not recorded twice: a transaction of unknown outcome is run again.
    """
    given_up = Ranges((gap.first, gap.last) for gap in found if gap.count)
    recorded = dict(_numbered(connection))
    for number, old in recorded.items():
        if old.declared and given_up.end_of(old.declared) is not None:
            recorded[number] = replace(old, declared=0)
            _write(connection, number, recorded[number])
    waiting = {number: old for number, old in recorded.items() if old.count and not old.declared}
    covered = Ranges((old.first, old.last) for old in waiting.values())
    ends = {(old.last, old.reason): number for number, old in waiting.items()}
    added = [gap for gap in found if not gap.count or (covered.end_of(gap.first) or 0) < gap.last]
    for number, gap in enumerate(added, max(recorded, default=0) + 1):
        before = ends.pop((gap.first - 1, gap.reason), None) if gap.count else None
        recorded[number] = gap if before is None else replace(gap, first=recorded[before].first)
        if before is not None:
            connection.execute("DELETE FROM gaps WHERE number = ?", (before,))
        if gap.count:
            ends[gap.last, gap.reason] = number
        _write(connection, number, recorded[number])


def declare(connection: sqlite3.Connection, position: int) -> None:
    """Record that the event at this position has declared all gaps so far; delete the oldest of those declared before.

    All those that it declares itself stay: its commit may still fail.
    """
    connection.execute(
        "DELETE FROM gaps WHERE declared > 0 AND number <= (SELECT max(number) FROM gaps) - ?", (GAPS_MAX,)
    )
    for number, gap in _numbered(connection):
        if not gap.declared:
            _write(connection, number, replace(gap, declared=position))


def retract(connection: sqlite3.Connection, first_position: int) -> None:
    """Undo all declarations by events from this position on: their commit does not count."""
    for number, gap in _numbered(connection):
        if gap.declared >= first_position:
            _write(connection, number, replace(gap, declared=0))


def load(connection: Reads) -> list[Gap]:
    """Return the gaps in the order in which they were found."""
    return [gap for _, gap in _numbered(connection)]


def count_declarations(connection: Reads) -> int:
    """Count the commits that have declared gaps, of those still kept."""
    count: int = connection.execute("SELECT count(DISTINCT declared) FROM gaps WHERE declared > 0").fetchone()[0]
    return count


def undeclared(gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps without a declaration: not yet made, or itself in a gap by now."""
    return [gap for gap in gaps if not gap.declared]


def _numbered(connection: Reads) -> list[tuple[int, Gap]]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM gaps ORDER BY number")
    return [(number, Gap(*gap)) for number, *gap in verified("gaps", rows)]


def _write(connection: sqlite3.Connection, number: int, gap: Gap) -> None:
    row = (number, gap.first, gap.last, gap.reason, gap.declared)
    connection.execute(
        f"INSERT OR REPLACE INTO gaps ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", (*row, checksum("gaps", row))
    )
