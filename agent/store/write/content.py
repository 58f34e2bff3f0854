"""The content of a decided commit: written within the transaction, remembered once that is on disk."""

from __future__ import annotations

import sqlite3

from agent.store.facts import CHECKPOINTS, CLOCK_UNTRUSTED
from agent.store.fingerprints import fingerprint_rows
from agent.store.memory import Memory
from agent.store.read.section import Section
from agent.store.schema import gaps, tables
from agent.store.schema.tables import EpochStart
from agent.store.write.decision import Decision
from contract.chain import DIGEST_START


def write(connection: sqlite3.Connection, decision: Decision, begins: EpochStart | None, service_ms: int) -> None:
    """Write a commit; `begins` is the epoch that starts with it, None where that has begun already."""
    first = decision.first_position
    if decision.rejects:
        tables.insert_rejects(connection, decision.rejects)
    if not decision.packed:
        return
    if begins is not None:
        tables.insert_epoch(connection, first, begins)
    elif decision.begins_section:
        tables.write_fact(connection, CHECKPOINTS, str(tables.read_count(connection, CHECKPOINTS) + 1))
    tables.insert_events(connection, first, decision.packed)
    if decision.declares:
        gaps.declare(connection, decision.declares)
    if decision.untrusted_clock is not decision.memory.untrusted_clock:
        tables.write_fact(connection, CLOCK_UNTRUSTED, decision.untrusted_clock.text())
    keys = decision.retransmission_keys
    fingerprint_rows.insert_fingerprints(connection, first, service_ms, decision.fingerprints, keys)


def remember(memory: Memory, decision: Decision, service_ms: int) -> None:
    """Add a commit that is on disk to memory."""
    memory.rejects.remember(decision.rejects)
    if not decision.packed:
        return
    if decision.epoch_first == decision.first_position:
        memory.epochs.add(decision.first_position, decision.epoch)
    memory.fingerprints.add(decision.first_position, service_ms, b"".join(decision.fingerprints))
    for key, position in decision.retransmission_keys.items():
        memory.retransmissions.remember(key, position, decision.monotonic_ms)
    memory.similar.remember(decision.similarity_keys, decision.monotonic_ms)
    if decision.declares:
        memory.undeclared.clear()
    memory.untrusted_clock = decision.untrusted_clock
    memory.end = decision.next_position - 1
    if decision.begins_section:
        memory.section = Section(decision.first_position, DIGEST_START, decision.monotonic_ms)
    if memory.section is not None:
        memory.section.append(decision.packed)
    memory.progress.advance(memory.end)
