"""One event's way through the store: when it was committed, how far it has come, and its copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.store.errors import DamagedEventError
from agent.store.fingerprints import rows, segments
from agent.store.fingerprints.transient import split
from agent.store.format.packing import unpack_readable
from agent.store.port import Batch, StoredEvent
from agent.store.read.events import Epochs, read_packed, stored
from agent.store.read.states import States
from agent.store.schema import tables
from agent.store.schema.database import Reads, moment
from agent.store.schema.tables import Opening, Row
from contract.event import Label

COPIES_MAX = 100_000
"""How many of the latest copies are looked through."""
SEARCHED_POSITIONS = 10_000
"""Looked through in one statement: while it runs, the service cannot begin its log anew."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What the store knows of one event; moments in milliseconds since 1970 UTC."""

    position: int
    label: Label
    state: str
    committed: int | None
    """By the clock of the opening, right or wrong; some seconds too early once the fingerprint is sealed; None where
    it is forgotten."""
    event: StoredEvent | None
    """None where it is purged."""
    batch: Batch | None
    copies: tuple[int, ...]
    """Moments of the copies that were noted one by one."""


def trace(connection: Reads, fingerprint: bytes) -> Iterator[Trace]:
    """Yield every event under a fingerprint: one, or more where it came again after the retention.

    The search goes through the store a part at a time; what is said of an event is of one moment after it.
    """
    commits = _remembered(connection, fingerprint)
    positions = sorted({*commits, *_kept(connection, fingerprint)})
    with moment(connection):
        epochs, states = Epochs.load(connection), States(connection)
        copies = rows.latest_duplicates(connection, COPIES_MAX)
        found = [
            Trace(
                position,
                epochs.label(position),
                states.state(position),
                commits.get(position),
                _read(connection, position, epochs),
                states.batch(position),
                tuple(copy.received for copy in copies if copy.position == position),
            )
            for position in positions
        ]
    yield from found


def fingerprint_at(connection: Reads, position: int) -> bytes | None:
    """Return the fingerprint that is remembered for a position."""
    for row in rows.fingerprints_between(connection, position, position):
        known: dict[int, bytes] = dict(enumerate(split(row[2]), row[0]))
        if position in known:
            return known[position]
    for segment, _ in segments.load_segments(connection):
        if segment.first <= position <= segment.last:
            for entry in segments.entries(connection, segment.number):
                if entry.position == position:
                    return entry.fingerprint
    return None


def _remembered(connection: Reads, fingerprint: bytes) -> dict[int, int]:
    """Return the positions whose fingerprint is remembered, each with the moment of its commit."""
    openings = tables.load_openings(connection)
    found: dict[int, int] = {}
    columns = "first_position, service, packed"
    for first_position, service, packed in _search(connection, "fingerprints", columns, fingerprint):
        opening = _opening_of(openings, first_position)
        for place, piece in enumerate(split(packed)):
            if piece == fingerprint:
                found[first_position + place] = opening.wall + service - opening.service
    for segment, _ in segments.load_segments(connection):
        entry = segments.find(connection, segment.number, fingerprint)
        if entry is not None:
            opening = _opening_of(openings, entry.position)
            found.setdefault(entry.position, opening.wall + entry.service - opening.service)
    return found


def _opening_of(openings: list[tuple[int, Opening]], position: int) -> Opening:
    return max((pair for pair in openings if pair[0] <= position), key=lambda pair: pair[0])[1]


def _kept(connection: Reads, fingerprint: bytes) -> Iterator[int]:
    """Yield the positions of kept events, which may outlive what is remembered."""
    for row in _search(connection, "events", "first_position, count, packed", fingerprint):
        yield from (event.position for event in unpack_readable(*row) if event.fingerprint == fingerprint)


def _search(connection: Reads, table: str, columns: str, fingerprint: bytes) -> Iterator[Row]:
    """Yield the rows that hold a fingerprint; each statement looks through some positions only, and is soon over."""
    query = f"SELECT {columns} FROM {table} WHERE first_position BETWEEN ? AND ? AND instr(packed, ?)"
    first: int | None
    first, last = connection.execute(f"SELECT min(first_position), max(first_position) FROM {table}").fetchone()
    while first is not None and first <= last:
        yield from connection.execute(query, (first, first + SEARCHED_POSITIONS - 1, fingerprint)).fetchall()
        first += SEARCHED_POSITIONS


def _read(connection: Reads, position: int, epochs: Epochs) -> StoredEvent | None:
    try:
        return next((stored(event, epochs) for event in read_packed(connection, position, position)), None)
    except DamagedEventError:
        return None
