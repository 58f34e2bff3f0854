"""Decides what one commit holds: for each submission, which events are new and which are duplicates."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Final

from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS
from agent.store.format.packing import pack_fields
from agent.store.gateway_events import UntrustedClock
from agent.store.memory import Memory
from agent.store.port import Candidate, Outcome, Reject, Submission
from agent.store.schema.database import GetConnection
from contract.event import Label
from contract.fingerprint import fingerprint as compute_fingerprint
from contract.record import ClockTrust

STORE_FULL: Final = "the store is full: it keeps every event until the table has it"
FULL_RETRY_SECONDS: Final = 60
"""When a sensor may try again while the store is full: every poll of the receipts may free space."""
_PLACE_PERSON: Final = b"oncegate-place-1"


@dataclass(slots=True)
class Decision:
    """The content of the next commit, decided submission by submission against what memory has committed."""

    memory: Memory
    connection: GetConnection
    """Looks sealed fingerprints up."""
    epoch: str
    epoch_first: int
    """Position of the epoch's sequence 1."""
    monotonic_ms: int
    service_ms: int
    boot: str
    """Id of this boot of the machine."""
    refusal: str
    """Why there is no space for new events; empty where there is."""
    refuses: bool = False
    """Whether a submission is refused for that."""
    first_position: int = field(init=False)
    next_position: int = field(init=False)
    untrusted_clock: UntrustedClock = field(init=False)
    """What is accepted under an untrusted clock and not declared, as of this commit."""
    packed: list[bytes] = field(default_factory=list)
    fingerprints: dict[bytes, int] = field(default_factory=dict)
    retransmission_keys: dict[bytes, int] = field(default_factory=dict)
    """With the position of the first event of each."""
    similarity_keys: dict[int, bytes] = field(default_factory=dict)
    """With the fingerprint of the latest event of each."""
    rejects: list[Reject] = field(default_factory=list)
    duplicates: list[tuple[bytes, int]] = field(default_factory=list)
    """Duplicates with the position of the event that each repeats."""
    suspected: list[bytes] = field(default_factory=list)
    """Fingerprints of new events that name an earlier one."""
    corrections: int = 0
    """How many events declare corrections of the clock."""
    declaration_position: int = 0
    """Position of the last event that declares a gap; 0 where there is none."""
    begins_section: bool = False
    after_commit: list[tuple[Submission, Outcome]] = field(default_factory=list)
    at_once: list[tuple[Submission, Outcome]] = field(default_factory=list)
    """Outcomes that this commit cannot change: duplicates of events on disk, refusals."""

    def __post_init__(self) -> None:
        self.first_position = self.memory.end + 1
        self.next_position = self.first_position
        self.untrusted_clock = self.memory.untrusted_clock

    def add(self, submission: Submission) -> None:
        """Decide one submission as a whole."""
        proven = self._proven_positions(submission)
        refusal = submission.refusal or self.refusal
        if refusal and None in map(self._position, submission.candidates, proven):
            self.refuses = self.refuses or not submission.refusal
            self.at_once.append((submission, Outcome(refusal=refusal, retry_seconds=FULL_RETRY_SECONDS)))
            return
        start = self.next_position
        given: list[bytes] = []
        new: list[bool] = []
        labelled: list[int] = []
        suspected = len(self.suspected)
        in_progress = False
        for at, candidate in enumerate(submission.candidates):
            position = self._position(candidate, proven[at])
            new.append(position is None)
            if position is None:
                position = self.next_position
                given.append(self.add_new(candidate))
            else:
                fingerprint = candidate.fingerprint or compute_fingerprint(
                    candidate.event, candidate.fields, self._label(position)
                )
                in_progress |= position >= self.first_position
                self.duplicates.append((fingerprint, position))
                given.append(fingerprint)
            if candidate.fingerprint is None:
                labelled.append(position)
        if submission.retransmission_key is not None and labelled and max(labelled) >= start:
            self._note_retransmission_key(submission.retransmission_key, labelled)
        accepted = self.next_position - start
        if submission.uptime_ms is not None and accepted:
            self._note_clock(start, submission.candidates[0], submission.uptime_ms)
        rejects = self._new_rejects(submission, accepted, retransmitted=proven.count(None) < len(proven))
        self.rejects.extend(rejects)
        in_progress |= accepted > 0 or bool(rejects)
        outcome = Outcome(accepted, len(given) - accepted, tuple(given), tuple(new), tuple(self.suspected[suspected:]))
        (self.after_commit if in_progress else self.at_once).append((submission, outcome))

    def begin_section(self, candidate: Candidate, uptime_ms: int) -> None:
        """Add the event that begins a section, before any other."""
        self.begins_section = True
        self.add_own(candidate, uptime_ms)

    def declare(self, candidate: Candidate, uptime_ms: int) -> None:
        self.declaration_position = self.next_position
        self.add_own(candidate, uptime_ms)

    def add_own(self, candidate: Candidate, uptime_ms: int) -> None:
        """Add an event of the gateway, made this long after its boot."""
        if candidate.clock is ClockTrust.UNTRUSTED:
            self._note_clock(self.next_position, candidate, uptime_ms)
        self.add_new(candidate)

    def correct_clock(self, corrections: Sequence[Candidate]) -> None:
        """Add the corrections of acceptances under an untrusted clock before this commit."""
        for correction in corrections:
            self.add_new(correction)
        self.corrections = len(corrections)
        self.untrusted_clock = UntrustedClock(self.boot, (), self.memory.untrusted_clock.declared + self.corrections)

    def add_new(self, candidate: Candidate) -> bytes:
        """Add a new event at the next position; return its fingerprint."""
        position = self.next_position
        fingerprint = candidate.fingerprint
        if fingerprint is None:
            label = self._label(position)
            fingerprint = compute_fingerprint(candidate.event, candidate.fields, label)
            if candidate.retransmission_key is not None:
                self.retransmission_keys[candidate.retransmission_key] = position
        tail = candidate.tail
        if candidate.similarity_key is not None:
            tail += self._suspicion(candidate.similarity_key, candidate.similarity_seconds, fingerprint)
        self.packed.append(pack_fields(position, fingerprint, tail, candidate.clock, candidate.shared, candidate.bound))
        self.fingerprints[fingerprint] = position
        self.next_position = position + 1
        return fingerprint

    def _note_clock(self, position: int, candidate: Candidate, uptime_ms: int) -> None:
        self.untrusted_clock = self.untrusted_clock.noted(self.boot, position, candidate.received - uptime_ms)

    def _new_rejects(self, submission: Submission, accepted: int, *, retransmitted: bool) -> tuple[Reject, ...]:
        """Return the invalid events to keep: a resent pack repeats some that are kept already."""
        if accepted or not (submission.candidates or submission.is_part):
            return submission.rejects
        return () if retransmitted else tuple(filter(self.memory.rejects.is_new, submission.rejects))

    def _suspicion(self, key: int, seconds: float | None, fingerprint: bytes) -> bytes:
        """Return the value's entry with the earlier event that this one may repeat; empty without one."""
        earlier = self.similarity_keys.get(key) or self.memory.similar.find(key, self.monotonic_ms, seconds)
        self.similarity_keys[key] = fingerprint
        if earlier is not None:
            self.suspected.append(fingerprint)
        return b"" if earlier is None else b',"possible_duplicate_of":"%s"' % earlier.hex().encode()

    def _position(self, candidate: Candidate, proven: int | None = None) -> int | None:
        """Return the position of the event that a candidate repeats; the transport proves the position `proven`."""
        if candidate.fingerprint is None:
            if proven is not None and self._is_remembered(proven):
                return proven
            key, lifetime_ms = candidate.retransmission_key, candidate.retransmission_seconds * 1000
            noted = None if key is None else self._noted(key, lifetime_ms)
            return noted if noted is not None and self._is_remembered(noted) else None
        position = self.fingerprints.get(candidate.fingerprint)
        if position is None:
            position = self.memory.fingerprints.position(candidate.fingerprint, self.connection)
        return position

    def _proven_positions(self, submission: Submission) -> list[int | None]:
        """Return for each candidate the position that its transport proves; none for those with a fingerprint.

        They are consecutive, except where another position is noted.
        """
        key, first = submission.retransmission_key, None
        if key is not None:
            for candidate in submission.candidates:
                if candidate.fingerprint is None:
                    first = self._noted(key)
                    break
        if key is None or first is None:
            return [None] * len(submission.candidates)
        positions: list[int | None] = []
        following, place = first, 0
        for candidate in submission.candidates:
            if candidate.fingerprint is not None:
                positions.append(None)
                continue
            noted = self._noted(_key_of_place(key, first, place)) if place else first
            position = following if noted is None else noted
            positions.append(position)
            following, place = position + 1, place + 1
        return positions

    def _note_retransmission_key(self, key: bytes, positions: list[int]) -> None:
        """Note the positions of the events of a delivery whose labels join their identity."""
        first = positions[0]
        is_noted = self._noted(key) == first
        if not is_noted:
            self.retransmission_keys[key] = first
        for place, (before, position) in enumerate(pairwise(positions), 1):
            if not is_noted and position == before + 1:
                continue
            name = _key_of_place(key, first, place)
            noted = self._noted(name) if is_noted else None
            if position != (before + 1 if noted is None else noted):
                self.retransmission_keys[name] = position

    def _noted(self, key: bytes, lifetime_ms: float = EXCHANGE_LIFETIME_MS) -> int | None:
        """Return the position that is stored for a retransmission key, even if the event there is in a gap since."""
        position = self.retransmission_keys.get(key)
        return (
            self.memory.retransmissions.position(key, self.monotonic_ms, lifetime_ms) if position is None else position
        )

    def _is_remembered(self, position: int) -> bool:
        """Whether an event is kept or its fingerprint stored: an event in a gap may be sent again."""
        return position >= self.first_position or self.memory.fingerprints.is_remembered(position)

    def _label(self, position: int) -> Label:
        if position >= self.epoch_first:
            return Label(self.epoch, position - self.epoch_first + 1)
        return self.memory.epochs.label(position)


def _key_of_place(key: bytes, first: int, place: int) -> bytes:
    """Return the retransmission key of a delivery's event whose position does not follow the one before."""
    named = key + first.to_bytes(8, "big") + place.to_bytes(4, "big")
    return blake2b(named, digest_size=len(key), person=_PLACE_PERSON).digest()
