"""Does a store hold what it should: pages, checksums, labels, states. Reads only, also beside the service."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sqlite_utils import Database

from agent.store import database, gaps, known_rows, segments, tables
from agent.store.coverage import Ranges
from agent.store.damage import is_damage
from agent.store.filters import Filters
from agent.store.inspection import inspect_files
from agent.store.known import FORGOTTEN, split
from agent.store.packing import PackedEvent, unpack_readable
from agent.store.reader import Epochs, check_commit
from agent.store.reading import open_database
from agent.store.states import NEW, PROCESSED, States

FINDINGS_MAX = 1_000
"""Of each check; the rest is more of the same."""
_STARTED = re.compile(rb'"device":"urn:oncegate:gateway:[^"]*","type":"gateway\.started","id":"([0-9a-f]{16})"')


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    check: str
    text: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at everything has found."""

    events: int
    """How many are kept and whole."""
    findings: tuple[Finding, ...]


def verify(path: Path) -> Verification:
    """Look at everything; raise StoreError where there is no store."""
    with closing(database.open_for_reading(path)) as connection:
        look = _Look(path, open_database(connection))
        checks: dict[str, Callable[[], Iterator[str]]] = {
            "files": look.files,
            "integrity": look.integrity,
            "rows": look.rows,
            "events": look.events,
            "labels": look.labels,
            "fingerprints": look.fingerprints,
            "segments": look.segments,
            "states": look.states,
        }
        findings: list[Finding] = []
        for name, check in checks.items():
            try:
                findings.extend(Finding(name, text) for text in islice(check(), FINDINGS_MAX))
            except (sqlite3.Error, database.DamagedStoreError) as error:
                if not is_damage(error, opening=True):
                    raise
                findings.append(Finding(name, f"cannot be read: {error}"))
        return Verification(look.whole, tuple(findings))


class _Look:
    """The checks, each a generator of what it finds."""

    def __init__(self, path: Path, store: Database) -> None:
        self._path = path
        self._store = store
        self.whole = 0

    def files(self) -> Iterator[str]:
        """Look for what SQLite passes over in silence; then fix the moment for all other checks."""
        try:
            inspect_files(self._path)
        except database.DamagedStoreError as error:
            yield str(error)
        self._store.execute("BEGIN")

    def integrity(self) -> Iterator[str]:
        for row in self._store.query(f"PRAGMA integrity_check({FINDINGS_MAX})"):
            if row["integrity_check"] != "ok":
                yield row["integrity_check"]

    def rows(self) -> Iterator[str]:
        """Verify each table's rows; the first wrong one of a table is named."""
        loads: tuple[Callable[[database.Reads], object], ...] = (
            tables.load_openings,
            tables.load_batches,
            tables.load_processed,
            tables.load_facts,
            gaps.load,
            segments.load_forgotten,
            lambda connection: sum(1 for _ in known_rows.load_fingerprints(connection)),
        )
        for load in loads:
            try:
                load(self._store)
            except database.DamagedStoreError as error:
                yield str(error)

    def events(self) -> Iterator[str]:
        """Verify each event's checksum, and that commits do not overlap; what is declared lost is no news."""
        following = 0
        lost = States(self._store).lost
        for first, count, packed in self._commits():
            if first < following:
                yield f"commit at position {first}: overlaps the one before it"
            readable = list(unpack_readable(first, count, packed))
            self.whole += len(readable)
            found = {event.position for event in readable}
            for position in range(first, first + count):
                if position not in found and lost.end_of(position) is None:
                    yield f"event at position {position}: the checksum does not match"
            following = first + count

    def labels(self) -> Iterator[str]:
        """Hold each epoch against its first event, which carries its name."""
        epochs = Epochs.load(self._store)
        openings = {first: opening.epoch for first, opening in tables.load_openings(self._store)}
        for event in self._events():
            started = _STARTED.match(event.tail)
            if not epochs.covers(event.position):
                yield f"event at position {event.position}: no epoch gives it a label"
            elif started and openings.get(event.position) != started[1].decode():
                yield f"event at position {event.position}: it begins epoch {started[1].decode()}, which has no row"

    def fingerprints(self) -> Iterator[str]:
        """Hold the remembered fingerprints against those of the events."""
        rows = known_rows.load_fingerprints(self._store)
        known: dict[int, bytes] = {}
        last = 0
        for event in self._events():
            while last < event.position and (row := next(rows, None)) is not None:
                known = dict(enumerate(split(row.fingerprints), row.first_position))
                last = row.first_position + len(known) - 1
            if known.get(event.position, event.fingerprint) not in (event.fingerprint, FORGOTTEN):
                yield f"event at position {event.position}: another fingerprint is remembered for it"

    def segments(self) -> Iterator[str]:
        """Hold each segment's entries against what its own row says."""
        last = 0
        for segment, bloom in segments.load_segments(self._store):
            if not last < segment.first <= segment.last:
                yield f"segment {segment.number}: its positions overlap those of another"
            last = segment.last
            count, before = 0, b""
            filters = Filters(8 * len(bloom))
            filters.add(segment.number, bloom)
            for entry in segments.entries(self._store, segment.number):
                count += 1
                if not before < entry.fingerprint:
                    yield f"segment {segment.number}: not sorted at position {entry.position}"
                if not segment.first <= entry.position <= segment.last:
                    yield f"segment {segment.number}: has position {entry.position}, which is not of its own"
                if not filters.candidates(entry.fingerprint):
                    yield f"segment {segment.number}: its filter hides position {entry.position}"
                before = entry.fingerprint
            if count != segment.count:
                yield f"segment {segment.number}: {count} entries, {segment.count} expected"

    def states(self) -> Iterator[str]:
        """Look for ranges that contradict one another, and for new events that are not there."""
        states = States(self._store)
        end = tables.last_position(self._store)
        last = 0
        for batch in states.batches:
            if not last < batch.first <= batch.last <= end:
                yield f"batch from {batch.first} to {batch.last}: overlaps another, or ends behind the last event"
            if states.state(batch.first) == PROCESSED:
                yield f"batch from {batch.first} to {batch.last}: processed and waiting for its receipt at once"
            last = batch.last
        kept = Ranges((first, first + count - 1) for first, count, _ in self._commits())
        position = 1
        while position <= end:
            held = kept.end_of(position)
            if held is None and states.state(position) == NEW:
                yield f"event at position {position}: neither delivered nor there"
            done = states.done.end_of(position)
            position = max(position, held or 0, done or 0) + 1

    def _commits(self) -> Iterator[tuple[int, int, bytes]]:
        for row in self._store.query("SELECT * FROM events ORDER BY first_position"):
            commit = (row["first_position"], row["count"], row["packed"])
            check_commit(*commit)
            yield commit

    def _events(self) -> Iterator[PackedEvent]:
        for commit in self._commits():
            yield from unpack_readable(*commit)
