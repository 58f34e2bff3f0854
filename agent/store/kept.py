"""The events of one epoch that are still kept, with their states, read beside the running service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.store import tables
from agent.store.damage import DamagedEventError
from agent.store.port import StoredEvent
from agent.store.reader import Epochs, read_packed, stored
from agent.store.states import States

POSITIONS_AT_A_TIME: Final = 1_000
"""How much is read in one look, so that the store's log does not grow because of it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An event and how far it has come."""

    event: StoredEvent
    state: str


def positions_of(connection: sqlite3.Connection, epoch: str) -> range | None:
    """Give the positions of an epoch's events, kept or not; None where the epoch is not known."""
    known = [(first, opening.epoch) for first, opening in tables.load_openings(connection)]
    ends = [*(first for first, _ in known[1:]), tables.last_position(connection) + 1]
    return next((range(first, end) for (first, name), end in zip(known, ends, strict=True) if name == epoch), None)


def read_kept(connection: sqlite3.Connection, positions: range) -> Iterator[Kept]:
    """Give what is still kept and whole of some positions, in order."""
    for start in range(positions.start, positions.stop, POSITIONS_AT_A_TIME):
        yield from _look(connection, start, min(start + POSITIONS_AT_A_TIME, positions.stop) - 1)


def _look(connection: sqlite3.Connection, first: int, last: int) -> list[Kept]:
    """Read some at once, and end the look before anything is done with them."""
    found: list[Kept] = []
    connection.execute("BEGIN")
    try:
        epochs, states = Epochs.load(connection), States(connection)
        while first <= last:
            try:
                for packed in read_packed(connection, first, last):
                    found.append(Kept(stored(packed, epochs), states.state(packed.position)))
                    first = packed.position + 1
                break
            except DamagedEventError as damage:
                first = damage.last + 1
    finally:
        connection.execute("ROLLBACK")
    return found
