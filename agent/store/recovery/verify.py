"""Verifies a store: pages, checksums, labels, states. Reads only, even beside the running service."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

from agent.store.errors import DamagedStoreError, is_damage
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.filters import Filters
from agent.store.fingerprints.segments import Segment
from agent.store.fingerprints.transient import FORGOTTEN, split
from agent.store.format.packing import unpack_readable
from agent.store.port import StoredEvent
from agent.store.ranges import Ranges
from agent.store.read.documents import read_only
from agent.store.read.events import Epochs, check_commit
from agent.store.read.kept import NEW, PROCESSED, States
from agent.store.recovery.open import inspect_files
from agent.store.schema import database, gaps, tables
from agent.store.schema.tables import Commit
from contract.record import read_started

FINDINGS_MAX = 1_000
PAGE_ROWS, PAGE_BYTES = 4_096, 4 << 20
"""How much is read in one snapshot of the store: while that is held, the service cannot restart its log."""
FILE_CHECKS = 3
"""How often file and log have to contradict each other before that is a finding."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Defect:
    """Something in the store that is wrong."""

    check: str
    text: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    events: int
    """How many events are kept and whole."""
    findings: tuple[Defect, ...]


def verify(path: Path) -> Verification:
    """Verify everything that is there now, a page at a time; raise StoreError where there is no store.

    What is compared is of one snapshot. Only `PRAGMA integrity_check` is one statement over the whole file.
    """
    with read_only(path) as store:
        run = _Checks(path, store)
        checks: dict[str, Callable[[], Iterator[str]]] = {
            "files": run.files,
            "integrity": run.integrity,
            "rows": run.rows,
            "events": run.events,
            "labels": run.labels,
            "fingerprints": run.fingerprints,
            "segments": run.segments,
            "states": run.states,
        }
        findings: list[Defect] = []
        for name, check in checks.items():
            try:
                findings.extend(Defect(name, text) for text in islice(check(), FINDINGS_MAX))
            except (sqlite3.Error, DamagedStoreError) as error:
                if not is_damage(error, opening=True):
                    raise
                findings.append(Defect(name, f"cannot be read: {error}"))
        return Verification(run.whole, tuple(findings))


class _Checks:
    """The checks, each a generator of findings."""

    def __init__(self, path: Path, store: database.Reads) -> None:
        self._path = path
        self._store = store
        self.whole = 0

    def files(self) -> Iterator[str]:
        """Check the files for damage that SQLite does not report.

        Beside a running agent file and log are read at different times: a finding that does not repeat is no damage.
        """
        for _ in range(FILE_CHECKS):
            try:
                inspect_files(self._path)
            except DamagedStoreError as error:
                found = str(error)
            else:
                return
        yield found

    def integrity(self) -> Iterator[str]:
        for (found,) in self._store.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
            if found != "ok":
                yield found

    def rows(self) -> Iterator[str]:
        """Verify each table's rows; the first wrong one of a table is named."""
        loads: tuple[Callable[[database.Reads], object], ...] = (
            tables.load_epochs,
            tables.load_batches,
            tables.load_processed,
            tables.load_facts,
            gaps.load,
            segments.load_forgotten,
            tables.load_rejects,
            _load_fingerprints,
        )
        for load in loads:
            try:
                load(self._store)
            except DamagedStoreError as error:
                yield str(error)

    def events(self) -> Iterator[str]:
        """Verify each event's checksum, and that commits do not overlap; events that are in a gap are no finding."""
        following = 0
        for commits, lost in self._pages(lambda _: States(self._store).lost):
            for first, count, packed in commits:
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
        """Compare each epoch with its first event, which carries its name."""
        for commits, starts in self._pages(lambda _: tables.load_epochs(self._store)):
            names = {first: start.epoch for first, start in starts}
            epochs = Epochs(list(names.items()))
            for event in _events(commits):
                started = read_started(event.tail)
                if not epochs.covers(event.position):
                    yield f"event at position {event.position}: it belongs to no epoch"
                elif started and names.get(event.position) != started.epoch:
                    yield f"event at position {event.position}: it begins epoch {started.epoch}, which has no row"

    def fingerprints(self) -> Iterator[str]:
        """Compare the remembered fingerprints with those of the events."""
        for commits, remembered in self._pages(self._remembered):
            for event in _events(commits):
                if remembered.get(event.position, event.fingerprint) not in (event.fingerprint, FORGOTTEN):
                    yield f"event at position {event.position}: another fingerprint is remembered for it"

    def segments(self) -> Iterator[str]:
        """Compare each segment's entries with its own row, each segment in one snapshot."""
        number: int | None = 0
        last = 0
        while number is not None:
            with database.snapshot(self._store):
                found = next(segments.load_segments(self._store, number), None)
                if found is not None:
                    yield from list(self._check_segment(*found, last))
                    last = found[0].last
            number = None if found is None else found[0].number

    def _check_segment(self, segment: Segment, bloom: bytes, last: int) -> Iterator[str]:
        """Check one segment; `last` is the highest position of the one before it."""
        if not last < segment.first <= segment.last:
            yield f"segment {segment.number}: its positions overlap those of another"
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
        """Find ranges that contradict one another, and new events that are not there."""
        with database.snapshot(self._store):
            yield from list(self._check_batches(States(self._store)))
        position = 1
        for commits, states in self._pages(lambda _: States(self._store)):
            kept = Ranges((first, first + count - 1) for first, count, _ in commits)
            end = commits[-1][0] + commits[-1][1] - 1
            yield from _check_kept(position, end, kept, states)
            position = end + 1
        yield from _check_kept(position, self._end, Ranges(), States(self._store))

    def _check_batches(self, states: States) -> Iterator[str]:
        end = tables.last_position(self._store)
        last = 0
        for batch in states.coverage.forwarded():
            if not last < batch.first <= batch.last <= end:
                yield f"batch from {batch.first} to {batch.last}: overlaps another, or ends behind the last event"
            if states.state(batch.first) == PROCESSED:
                yield f"batch from {batch.first} to {batch.last}: processed and waiting for its receipt at once"
            last = batch.last

    def _remembered(self, commits: list[Commit]) -> dict[int, bytes]:
        """Return the remembered fingerprints by the positions of some commits."""
        rows = fingerprint_rows.rows_between(self._store, commits[0][0], commits[-1][0] + commits[-1][1] - 1)
        return {
            position: piece
            for row in rows
            for position, piece in enumerate(split(row.fingerprints), row.first_position)
        }

    def _pages(self, load: Callable[[list[Commit]], T]) -> Iterator[tuple[list[Commit], T]]:
        """Yield the commits that were there at the start, in pages, each with what `load` returns in its snapshot."""
        following = 0
        while True:
            with database.snapshot(self._store):
                commits = self._read_page(following)
                if not commits:
                    return
                loaded = load(commits)
            yield commits, loaded
            following = commits[-1][0] + 1

    def _read_page(self, first: int) -> list[Commit]:
        rows = tables.commits_between(self._store, first, self._end, PAGE_ROWS)
        commits: list[Commit] = []
        size = 0
        for commit in rows:
            check_commit(*commit)
            commits.append(commit)
            size += len(commit[2])
            if size >= PAGE_BYTES:
                break
        rows.close()
        return commits

    @cached_property
    def _end(self) -> int:
        """The last position when this was first read: later events are not verified."""
        return tables.last_position(self._store)


def _check_kept(first: int, last: int, kept: Ranges, states: States) -> Iterator[str]:
    """Yield the new events from first to last that are not kept."""
    for start, end in Ranges([*kept, *states.coverage.processed]).holes(first, last):
        for position in range(start, end + 1):
            if states.state(position) == NEW:
                yield f"event at position {position}: neither delivered nor there"


def _events(commits: list[Commit]) -> Iterator[StoredEvent]:
    for commit in commits:
        yield from unpack_readable(*commit)


def _load_fingerprints(connection: database.Reads) -> None:
    """Verify the rows of the fingerprints, a page at a time."""
    position = -1
    while rows := fingerprint_rows.rows_above(connection, position, PAGE_ROWS):
        position = rows[-1].first_position
