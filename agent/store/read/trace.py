"""The traces of events in the store: when each was committed, its state, and its duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.store.errors import DamagedEventError, DamagedStoreError
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.transient import split
from agent.store.format.packing import unpack_readable
from agent.store.port import Batch, StoredEvent
from agent.store.read.events import Epochs, read_packed, stored
from agent.store.read.kept import States
from agent.store.schema import tables
from agent.store.schema.database import Reads, snapshot
from agent.store.schema.tables import EpochStart
from contract.event import Label

DUPLICATES_MAX = 100_000
"""How many of the latest duplicates are searched."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The store's data about one event; times are milliseconds since 1970 UTC."""

    position: int
    label: Label
    state: str
    committed: int | None
    """By the clock of the opening, right or wrong, and some seconds too early once the fingerprint is sealed.

    None where the fingerprint is forgotten.
    """
    event: StoredEvent | None
    """None where it is purged."""
    batch: Batch | None
    duplicates: tuple[int, ...]
    """Moments of the duplicates that were listed one by one."""


def trace(connection: Reads, fingerprint: bytes) -> Iterator[Trace]:
    """Yield every event with a fingerprint: one, or more if it arrived again after the retention.

    The store is searched a part at a time; all traces are of one snapshot after that.
    """
    commits = _remembered(connection, fingerprint)
    positions = sorted({*commits, *_kept(connection, fingerprint)})
    with snapshot(connection):
        epochs, states = Epochs.load(connection), States(connection)
        latest = fingerprint_rows.latest_duplicates(connection, DUPLICATES_MAX)
        found = [
            Trace(
                position,
                epochs.label(position),
                states.state(position),
                commits.get(position),
                _read(connection, position, epochs),
                states.batch(position),
                tuple(one.received for one in latest if one.position == position),
            )
            for position in positions
        ]
    yield from found


def fingerprint_at(connection: Reads, position: int) -> bytes | None:
    """Return the fingerprint that is remembered for a position."""
    for row in fingerprint_rows.rows_between(connection, position, position):
        fingerprints = dict(enumerate(split(row.fingerprints), row.first_position))
        if position in fingerprints:
            return fingerprints[position]
    for segment, _ in segments.load_segments(connection):
        if segment.first <= position <= segment.last:
            for entry in segments.entries(connection, segment.number):
                if entry.position == position:
                    return entry.fingerprint
    return None


def _remembered(connection: Reads, fingerprint: bytes) -> dict[int, int]:
    """Return the positions that are remembered for a fingerprint, each with the time of its commit."""
    epochs = tables.load_epochs(connection)
    found: dict[int, int] = {}
    columns = "first_position, service_ms, packed"
    for first_position, service_ms, packed in tables.search(connection, "fingerprints", columns, fingerprint):
        for place, piece in enumerate(split(packed)):
            if piece == fingerprint:
                found[first_position + place] = _commit_time(epochs, first_position, service_ms)
    for segment, _ in segments.load_segments(connection):
        entry = segments.find(connection, segment.number, fingerprint)
        if entry is not None:
            found.setdefault(entry.position, _commit_time(epochs, entry.position, entry.service_ms))
    return found


def _commit_time(epochs: list[tuple[int, EpochStart]], position: int, service_ms: int) -> int:
    """Return the time of a commit, in milliseconds since 1970 UTC."""
    start = tables.epoch_of(epochs, position)
    if start is None:
        raise DamagedStoreError(f"position {position}: it belongs to no epoch")
    return start.wall_ms + service_ms - start.service_ms


def _kept(connection: Reads, fingerprint: bytes) -> Iterator[int]:
    """Yield the positions of kept events, which may outlive their remembered fingerprint."""
    for commit in tables.search_commits(connection, fingerprint):
        yield from (event.position for event in unpack_readable(*commit) if event.fingerprint == fingerprint)


def _read(connection: Reads, position: int, epochs: Epochs) -> StoredEvent | None:
    try:
        return next((stored(event, epochs) for event in read_packed(connection, position, position)), None)
    except DamagedEventError:
        return None
