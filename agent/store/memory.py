"""The store's state in memory while it serves, and how it is loaded at the opening."""

import logging
import sqlite3
from dataclasses import dataclass

from agent.clock import Clock
from agent.config.settings import IdentitySettings
from agent.store import wear
from agent.store.errors import DamagedStoreError
from agent.store.facts import CLOCK_UNTRUSTED, FORGOTTEN_EARLY
from agent.store.fingerprints import fingerprint_rows, segments
from agent.store.fingerprints.index import DEFAULT_BOUNDS, FingerprintIndex, IndexBounds
from agent.store.fingerprints.transient import (
    EXCHANGE_LIFETIME_MS,
    RecentRejects,
    RetransmissionKeys,
    SimilarityKeys,
)
from agent.store.format.packing import unpack_readable
from agent.store.gateway_events import UntrustedClock, read_untrusted_clock
from agent.store.port import ClosedSection
from agent.store.progress import Progress
from agent.store.read import section
from agent.store.read.events import Epochs, check_commit
from agent.store.read.kept import States
from agent.store.read.section import Section
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import EpochStart
from agent.store.wear import BytesWritten
from contract.event import Label
from contract.record import ClockTrust

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """All state that the store needs without a query; nothing in it is uncommitted."""

    fingerprints: FingerprintIndex
    retransmissions: RetransmissionKeys
    similar: SimilarityKeys
    rejects: RecentRejects
    progress: Progress
    epochs: Epochs
    end: int
    """The highest position ever assigned."""
    first_kept: int
    """The lowest position whose event is still kept; above all that is stored where there is none."""
    service_ms: int
    """The service time of the last commit before this opening."""
    undeclared: list[Gap]
    untrusted_clock: UntrustedClock
    """What was accepted under an untrusted clock and is not declared yet."""
    section: Section | None
    """The hash chain's latest section, which ends with the last event; None where its digest is not known."""
    written: BytesWritten
    """How much was written to the disk before this opening."""
    forgotten_early: int = 0
    """How many fingerprints were forgotten before the end of their retention, since the store was created."""

    def last_label(self) -> Label | None:
        last = self.epochs.last()
        return None if last is None else Label(last[1], self.end - last[0] + 1)

    def close_section(self) -> ClosedSection | None:
        """Return the latest section with its digest; None where that is not known."""
        if self.section is None:
            return None
        first, last = self.epochs.label(self.section.first).sequence, self.epochs.label(self.end).sequence
        return ClosedSection(first, last, self.section.digest)


def load(
    connection: sqlite3.Connection, clock: Clock, identity: IdentitySettings, bounds: IndexBounds = DEFAULT_BOUNDS
) -> Memory:
    """Read the store; a retransmission key is kept only where it has certainly not expired."""
    openings = tables.load_epochs(connection)
    windows = [int((rule.window_seconds or 0) * 1000) for rule in identity.rules]
    retransmissions = RetransmissionKeys(max([EXCHANGE_LIFETIME_MS, *windows]))
    fingerprints, service_ms = _load_index(connection, bounds)
    for row in fingerprint_rows.load_rows(connection):
        for first, packed in fingerprints.unsealed(row.first_position, row.fingerprints):
            fingerprints.add(first, row.service_ms, packed)
        service_ms = max(service_ms, row.service_ms)
        if row.retransmission_keys:
            start = tables.epoch_of(openings, row.first_position)
            age_ms = _age_ms(start, row.service_ms, clock, retransmissions.lifetime_ms)
            if age_ms is not None:
                for key, position in row.retransmission_keys:
                    retransmissions.remember(key, position, clock.monotonic_ms() - age_ms)
    _check_last_commit(connection)
    end = tables.last_position(connection)
    first_kept = tables.first_event(connection)
    epochs = Epochs([(first, start.epoch) for first, start in openings])
    states = States(connection)
    return Memory(
        fingerprints,
        retransmissions,
        SimilarityKeys(int(identity.resend_window_seconds * 1000)),
        RecentRejects(),
        Progress(states.coverage, end, states.lost),
        epochs,
        end,
        end + 1 if first_kept is None else first_kept,
        service_ms,
        gaps.undeclared(gaps.load(connection)),
        _load_untrusted_clock(connection, clock),
        section.load(connection, epochs, end, clock.monotonic_ms()),
        wear.load(connection),
        tables.read_count(connection, FORGOTTEN_EARLY),
    )


def _load_index(connection: sqlite3.Connection, bounds: IndexBounds) -> tuple[FingerprintIndex, int]:
    """Load the sealed fingerprints; return the index and the latest service time in it."""
    index = FingerprintIndex(bounds)
    service_ms = 0
    for segment, bloom in segments.load_segments(connection):
        index.add_segment(segment, bloom)
        service_ms = max(service_ms, segment.service_ms)
    for first, last in segments.load_forgotten(connection):
        index.forget(first, last)
    return index, service_ms


def _load_untrusted_clock(connection: sqlite3.Connection, clock: Clock) -> UntrustedClock:
    """Load this boot's acceptances under an untrusted clock; those of another boot cannot be corrected."""
    found = read_untrusted_clock(tables.read_fact(connection, CLOCK_UNTRUSTED))
    if not found.begun or found.boot == clock.boot():
        return found
    log.warning("clock=uncorrected from_position=%d reason=%r", found.begun[0][0], "rebooted before it was trusted")
    return UntrustedClock(declared=found.declared)


def _check_last_commit(connection: sqlite3.Connection) -> None:
    """Raise DamagedStoreError if the last commit differs from what was written."""
    commit = tables.latest_commits(connection).fetchone()
    if commit is not None:
        check_commit(*commit)
        first, count, _ = commit
        if sum(1 for _ in unpack_readable(*commit)) != count:
            raise DamagedStoreError(f"commit at position {first}: not the {count} events that it held")


def _age_ms(start: EpochStart | None, service_ms: int, clock: Clock, lifetime_ms: int) -> int | None:
    """Return how long ago a commit of an earlier opening was, where that is certain, and within a key's lifetime."""
    if start is None:
        return None
    elapsed_ms = service_ms - start.service_ms
    if start.boot == clock.boot():
        age_ms = clock.uptime_ms() - start.uptime_ms - elapsed_ms
    elif start.trusted and clock.trust() is ClockTrust.TRUSTED:
        age_ms = clock.wall_ms() - start.wall_ms - elapsed_ms
    else:
        return None
    return age_ms if 0 <= age_ms <= lifetime_ms else None
