"""Stores with many fingerprints and waiting events, as after days, created by the store's own code."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from random import Random

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings
from agent.identity.identify import identify
from agent.store.fingerprints import fingerprint_rows
from agent.store.fingerprints.index import DEFAULT_BOUNDS, FingerprintIndex
from agent.store.fingerprints.sealing import Sealing
from agent.store.fingerprints.transient import FINGERPRINT_BYTES
from agent.store.format.packing import pack
from agent.store.layout import FILE_NAME
from agent.store.port import Candidate, Outcome, StoredEvent, Submission
from agent.store.schema import database, tables
from agent.store.write.connection import CurrentEpoch, ServiceClock
from contract.event import Event
from contract.record import ClockTrust, SharedDay

GATEWAY = "gw-bench"
DEVICES = 200
COMMIT_EVENTS = 100
TRANSACTION_COMMITS = 200
TAILS = 1_000
"""Distinct bodies among the waiting events, each of which has its own fingerprint and checksum."""


def events(seed: int) -> Iterator[Event]:
    """Yield distinct events of about 100 bytes of a sensor's JSON."""
    random, number = Random(seed), 0
    while True:
        number += 1
        yield Event(
            f"urn:dev:mac:00158d{random.randrange(DEVICES):010x}",
            id=(seed << 32) + number,
            time=1_763_706_000_000 + number * 37,
            data={
                "temperature": random.randrange(1500, 2800) / 100,
                "humidity": random.randrange(3000, 7000) / 100,
                "battery": random.randrange(80, 100),
            },
        )


def candidates(source: Iterator[Event], count: int) -> tuple[Candidate, ...]:
    """Return the next events as the pipeline passes them to the store."""
    settings = IdentitySettings()
    return tuple(
        identify(event, "coap", 1_763_706_000_000, ClockTrust.TRUSTED, settings) for event in islice(source, count)
    )


def submission(source: Iterator[Event], count: int, done: Callable[[Outcome], None]) -> Submission:
    """Return the next events as one delivery."""
    return Submission(candidates(source, count), (), None, done)


def fill(folder: Path, remembered: int, waiting: int, commit_events: int = COMMIT_EVENTS) -> None:
    """Create a store with a number of fingerprints, the latest of which belong to waiting events."""
    folder.mkdir(parents=True)
    with closing(database.open_for_service(folder / FILE_NAME)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        clock = SystemClock(trusted=True)
        connection.execute("BEGIN")
        tables.insert_epoch(connection, 1, CurrentEpoch(clock, ServiceClock(clock, 0)).start)
        if remembered > waiting:
            tables.replace_processed(connection, [(1, remembered - waiting)])
        connection.execute("COMMIT")
        known = FingerprintIndex(DEFAULT_BOUNDS)
        sealing = Sealing(known, lambda: connection, lambda: _transaction(connection), lambda: 1 << 40)
        tails = [candidate.tail for candidate in candidates(events(0), TAILS)]
        step = COMMIT_EVENTS * TRANSACTION_COMMITS
        for first in range(1, remembered + 1, step):
            positions = range(first, min(first + step, remembered + 1))
            _add(connection, known, positions, remembered - waiting, tails, commit_events)
            while sealing.step():
                pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA synchronous = FULL")
    os.sync()  # otherwise gigabytes are still written while acks are measured


def _add(
    connection: sqlite3.Connection,
    known: FingerprintIndex,
    positions: range,
    processed_to: int,
    tails: list[bytes],
    commit_events: int,
) -> None:
    connection.execute("BEGIN")
    for first in positions[::commit_events]:
        count = min(commit_events, positions.stop - first)
        packed = os.urandom(count * FINGERPRINT_BYTES)
        pieces = [packed[at : at + FINGERPRINT_BYTES] for at in range(0, len(packed), FINGERPRINT_BYTES)]
        fingerprint_rows.insert_fingerprints(connection, first, 0, pieces, {})
        known.add(first, 0, packed)
        if first > processed_to:
            tables.insert_events(
                connection,
                first,
                [
                    pack(StoredEvent(at, piece, tails[at % TAILS], ClockTrust.TRUSTED, SharedDay.TIME, None))
                    for at, piece in enumerate(pieces, first)
                ],
            )
    connection.execute("COMMIT")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    connection.execute("BEGIN")
    yield connection
    connection.execute("COMMIT")
