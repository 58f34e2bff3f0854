"""What a decided commit writes, and what of it is known once it is on disk."""

from __future__ import annotations

import sqlite3

from agent.store.fingerprints import rows
from agent.store.memory import Memory
from agent.store.schema import gaps, tables
from agent.store.schema.tables import Opening
from agent.store.write.decision import Decision


def write(connection: sqlite3.Connection, decision: Decision, begins: Opening | None, service: int) -> None:
    """Write a commit; `begins` is the epoch that starts with it, None where that is begun already."""
    first = decision.first_position
    if decision.rejects:
        tables.insert_rejects(connection, decision.rejects)
    if not decision.packed:
        return
    if begins is not None:
        tables.insert_epoch(connection, first, begins)
    tables.insert_events(connection, first, decision.packed)
    if decision.declares:
        gaps.declare(connection, decision.declares)
    rows.insert_fingerprints(connection, first, service, decision.fingerprints, decision.proofs)


def make_known(memory: Memory, decision: Decision, service: int) -> None:
    """Bring memory up to what is on disk."""
    memory.rejections.remember(decision.rejects)
    if not decision.packed:
        return
    if decision.epoch_first == decision.first_position:
        memory.epochs.add(decision.first_position, decision.epoch)
    memory.fingerprints.add(decision.first_position, service, b"".join(decision.fingerprints))
    for proof, position in decision.proofs.items():
        memory.proofs.remember(proof, position, decision.monotonic)
    memory.likenesses.remember(decision.likenesses, decision.monotonic)
    if decision.declares:
        memory.undeclared.clear()
    memory.end = decision.next_position - 1
    memory.progress.advance(memory.end)
