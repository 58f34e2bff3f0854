"""What leaves the outbox without the table's word: given up and forgotten, or released before it is sent.

Each is one transaction, and the memory learns of it after its commit. Runs on the writer's thread alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from agent.store.fingerprints import segments
from agent.store.memory import Memory
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap

Transact = Callable[[Callable[[sqlite3.Connection], None]], None]
"""Runs one transaction; raises with nothing written."""


def give_up(transact: Transact, memory: Memory, gap: Gap) -> None:
    """Forget what is in a gap, fingerprints and proofs, so that its resend is stored as new."""
    undeclared: list[Gap] = []

    def write(connection: sqlite3.Connection) -> None:
        nonlocal undeclared
        gaps.insert(connection, gap)
        segments.forget(connection, gap.first, gap.last)
        undeclared = gaps.undeclared(gaps.load(connection))

    transact(write)
    memory.give_up(gap, undeclared)


def release(transact: Transact, memory: Memory, first: int, last: int, note: tuple[str, str]) -> None:
    """Be done with events for good, with a fact in the same transaction."""
    with memory.progress.releasing(first, last) as change:

        def write(connection: sqlite3.Connection) -> None:
            change(connection)
            tables.write_fact(connection, *note)

        transact(write)
