"""Opening the store for service: what it holds is read into memory."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass

from agent.clock import Clock
from agent.store import wear
from agent.store.errors import DamagedStoreError
from agent.store.fingerprints import rows, segments
from agent.store.fingerprints.index import DEFAULT_BOUNDS, Fingerprints, IndexBounds
from agent.store.fingerprints.transient import Likenesses, Proofs, Rejections, Spans
from agent.store.format.packing import unpack_readable
from agent.store.progress import Progress
from agent.store.ranges import Coverage
from agent.store.read.events import Epochs, check_commit
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import Opening
from agent.store.wear import Written
from contract.event import Label
from contract.record import ClockTrust

EPOCH_BYTES = 8


@dataclass(slots=True)
class Memory:
    """All that the store knows without asking the disk; nothing in it is uncommitted."""

    fingerprints: Fingerprints
    proofs: Proofs
    likenesses: Likenesses
    rejections: Rejections
    progress: Progress
    epochs: Epochs
    end: int
    """The highest position ever given."""
    first_kept: int
    """The lowest position whose event is still kept; above all that is stored where there is none."""
    service: int
    """Milliseconds that the service had run at the last commit, in all its life."""
    undeclared: list[Gap]
    """What is given up and no event has said yet."""
    written: Written
    """How much was written to the disk before this opening."""

    def last_label(self) -> Label | None:
        """Return the label of the last event, None where there is none yet."""
        last = self.epochs.last()
        return None if last is None else Label(last[1], self.end - last[0] + 1)

    def give_up(self, gap: Gap, undeclared: list[Gap]) -> None:
        """Take note of a gap that is on disk, and forget what it held."""
        self.fingerprints.forget(gap.first, gap.last)
        self.progress.give_up(gap.first, gap.last)
        self.undeclared = undeclared


def begin(clock: Clock, service: int) -> Opening:
    """Return a new epoch, under a name that was never used."""
    return Opening(
        secrets.token_hex(EPOCH_BYTES),
        clock.boot(),
        clock.uptime_ms(),
        clock.wall_ms(),
        clock.trust() is ClockTrust.TRUSTED,
        service,
    )


def load(connection: sqlite3.Connection, clock: Clock, spans: Spans, bounds: IndexBounds = DEFAULT_BOUNDS) -> Memory:
    """Read the store; a proof lives on only where it is certain that its time is not over."""
    openings = tables.load_openings(connection)
    fingerprints = Fingerprints(bounds, lambda: connection)
    proofs = Proofs(spans.proof_ms)
    service = 0
    ages = _Ages(openings, clock, spans.proof_ms)
    for segment, bloom in segments.load_segments(connection):
        fingerprints.add_segment(segment, bloom)
        service = max(service, segment.service)
    for first, last in segments.load_forgotten(connection):
        fingerprints.forget(first, last)
    for remembered in rows.load_fingerprints(connection):
        for first, packed in fingerprints.unsealed(remembered.first_position, remembered.fingerprints):
            fingerprints.add(first, remembered.service, packed)
        service = max(service, remembered.service)
        if remembered.proofs and (age := ages.age(remembered.first_position, remembered.service)) is not None:
            for proof, position in remembered.proofs:
                proofs.remember(proof, position, clock.monotonic_ms() - age)
    _check_last_commit(connection)
    end = tables.last_position(connection)
    first_kept = tables.first_event(connection)
    given_up = gaps.load(connection)
    lost = [(gap.first, gap.last) for gap in given_up if gap.count]
    coverage = Coverage(tables.load_batches(connection), [*tables.load_processed(connection), *lost])
    return Memory(
        fingerprints,
        proofs,
        Likenesses(spans.likeness_ms),
        Rejections(),
        Progress(coverage, end, lost),
        Epochs([(first, opening.epoch) for first, opening in openings]),
        end,
        end + 1 if first_kept is None else first_kept,
        service,
        gaps.undeclared(given_up),
        wear.load(connection),
    )


def _check_last_commit(connection: sqlite3.Connection) -> None:
    """Raise DamagedStoreError where the end of the events, from which all goes on, is not what was written."""
    row = connection.execute(
        "SELECT first_position, count, packed FROM events ORDER BY first_position DESC LIMIT 1"
    ).fetchone()
    if row is not None:
        check_commit(*row)
        if sum(1 for _ in unpack_readable(*row)) != row[1]:
            raise DamagedStoreError(f"commit at position {row[0]}: not the {row[1]} events that it held")


class _Ages:
    """How long ago a commit of an earlier opening was, where that is certain."""

    def __init__(self, openings: list[tuple[int, Opening]], clock: Clock, lifetime_ms: int) -> None:
        self._openings = openings
        self._clock = clock
        self._lifetime_ms = lifetime_ms

    def age(self, first_position: int, service: int) -> int | None:
        """Return milliseconds up to the lifetime of a proof; None where older, or not to be told after a reboot."""
        opening = max(
            (pair for pair in self._openings if pair[0] <= first_position), key=lambda pair: pair[0], default=None
        )
        if opening is None:
            return None
        elapsed = service - opening[1].service
        if opening[1].boot == self._clock.boot():
            age = self._clock.uptime_ms() - opening[1].since_boot - elapsed
        elif opening[1].trusted and self._clock.trust() is ClockTrust.TRUSTED:
            age = self._clock.wall_ms() - opening[1].wall - elapsed
        else:
            return None
        return age if 0 <= age <= self._lifetime_ms else None
