"""What one commit will hold: for each submission, which events are new and which are copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

from agent.store.fingerprints.index import Fingerprints
from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS, Likenesses, Proofs, Rejections
from agent.store.format.packing import pack_fields
from agent.store.port import Candidate, Outcome, Reject, Submission
from agent.store.read.events import Epochs
from contract.event import Label
from contract.fingerprint import fingerprint as compute_fingerprint

STORE_FULL = "the store is full: it keeps every event until the table has it"
FULL_RETRY_SECONDS = 60
"""When a sensor may try again while the store is full: receipts make room every poll."""
_PLACE_PERSON = b"oncegate-place-1"


@dataclass(slots=True)
class Decision:
    """The content of the next commit, grown submission by submission."""

    epoch: str
    epoch_first: int
    """Position of the epoch's sequence 1."""
    first_position: int
    monotonic: int
    refusal: str
    """Why new events have no room; empty where they have."""
    known: Fingerprints
    epochs: Epochs
    proofs_known: Proofs
    likenesses_known: Likenesses
    rejections_known: Rejections
    packed: list[bytes] = field(default_factory=list)
    fingerprints: dict[bytes, int] = field(default_factory=dict)
    proofs: dict[bytes, int] = field(default_factory=dict)
    likenesses: dict[int, bytes] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    duplicates: list[tuple[bytes, int]] = field(default_factory=list)
    """Copies with the position of the event that each repeats."""
    suspected: list[bytes] = field(default_factory=list)
    """Fingerprints of new events that name an earlier one."""
    declares: int = 0
    """Position of the last event that declares what is given up; 0 where there is none."""
    after_commit: list[tuple[Submission, Outcome]] = field(default_factory=list)
    at_once: list[tuple[Submission, Outcome]] = field(default_factory=list)
    """Outcomes that this commit cannot change: copies of what is on disk, refusals."""

    @property
    def next_position(self) -> int:
        """The position of the next new event."""
        return self.first_position + len(self.packed)

    @property
    def refuses(self) -> bool:
        """Whether something is refused for which there is no room."""
        return any(outcome.refusal for _, outcome in self.at_once)

    def add(self, submission: Submission) -> None:
        """Decide one submission as a whole."""
        proven = self._proven_positions(submission)
        if self.refusal and None in map(self._position, submission.candidates, proven):
            self.at_once.append((submission, Outcome(refusal=self.refusal, retry_seconds=FULL_RETRY_SECONDS)))
            return
        start = self.next_position
        given: list[bytes] = []
        new: list[bool] = []
        labelled: list[int] = []
        suspected = len(self.suspected)
        in_work = False
        for candidate, told in zip(submission.candidates, proven, strict=True):
            position = self._position(candidate, told)
            new.append(position is None)
            if position is None:
                position = self.next_position
                given.append(self.add_new(candidate))
            else:
                fingerprint = candidate.fingerprint or compute_fingerprint(
                    candidate.event, candidate.fields, self._label(position)
                )
                in_work |= position >= self.first_position
                self.duplicates.append((fingerprint, position))
                given.append(fingerprint)
            if candidate.fingerprint is None:
                labelled.append(position)
        if submission.proof is not None and labelled and max(labelled) >= start:
            self._note_proof(submission.proof, labelled)
        accepted = self.next_position - start
        rejects = self._new_rejects(submission, accepted, retransmitted=any(told is not None for told in proven))
        self.rejects.extend(rejects)
        in_work |= accepted > 0 or bool(rejects)
        outcome = Outcome(accepted, len(given) - accepted, tuple(given), tuple(new), tuple(self.suspected[suspected:]))
        (self.after_commit if in_work else self.at_once).append((submission, outcome))

    def _new_rejects(self, submission: Submission, accepted: int, *, retransmitted: bool) -> tuple[Reject, ...]:
        """Return those invalid events that are kept: copies bring theirs again, too."""
        if accepted or not submission.candidates:
            return submission.rejects
        return () if retransmitted else tuple(filter(self.rejections_known.is_new, submission.rejects))

    def add_new(self, candidate: Candidate) -> bytes:
        """Add a new event at the next position; return its fingerprint."""
        position = self.next_position
        fingerprint = candidate.fingerprint
        if fingerprint is None:
            label = self._label(position)
            fingerprint = compute_fingerprint(candidate.event, candidate.fields, label)
            if candidate.proof is not None:
                self.proofs[candidate.proof] = position
        tail = candidate.tail
        if candidate.likeness is not None:
            tail += self._suspicion(candidate.likeness, candidate.likeness_seconds, fingerprint)
        self.packed.append(pack_fields(position, fingerprint, tail, candidate.clock, candidate.shared, candidate.bound))
        self.fingerprints[fingerprint] = position
        return fingerprint

    def _suspicion(self, likeness: int, seconds: float | None, fingerprint: bytes) -> bytes:
        """Name the earlier event that this one may repeat, as an entry of the record's value."""
        earlier = self.likenesses.get(likeness) or self.likenesses_known.find(likeness, self.monotonic, seconds)
        self.likenesses[likeness] = fingerprint
        if earlier is not None:
            self.suspected.append(fingerprint)
        return b"" if earlier is None else b',"possible_duplicate_of":"%s"' % earlier.hex().encode()

    def _position(self, candidate: Candidate, proven: int | None = None) -> int | None:
        """Return the position of the event that a candidate repeats; `proven` is where the transport says that is."""
        if candidate.fingerprint is None:
            if proven is not None and self._counts(proven):
                return proven
            noted = None if candidate.proof is None else self._noted(candidate.proof, candidate.proof_seconds * 1000)
            return noted if noted is not None and self._counts(noted) else None
        position = self.fingerprints.get(candidate.fingerprint)
        return self.known.position(candidate.fingerprint) if position is None else position

    def _proven_positions(self, submission: Submission) -> list[int | None]:
        """Return for each candidate where the transport proves it to be, which it does for those without a fingerprint.

        They lie one behind the other, but for those for which something else is noted.
        """
        proof = submission.proof
        first = None if proof is None else self._noted(proof)
        if proof is None or first is None:
            return [None] * len(submission.candidates)
        positions: list[int | None] = []
        following, place = first, 0
        for candidate in submission.candidates:
            if candidate.fingerprint is not None:
                positions.append(None)
                continue
            noted = self._noted(_proof_of_place(proof, first, place)) if place else first
            position = following if noted is None else noted
            positions.append(position)
            following, place = position + 1, place + 1
        return positions

    def _note_proof(self, proof: bytes, positions: list[int]) -> None:
        """Note where the events of a delivery are whose labels join their identity."""
        first = positions[0]
        known = self._noted(proof) == first
        if not known:
            self.proofs[proof] = first
        for place, (before, position) in enumerate(pairwise(positions), 1):
            if not known and position == before + 1:
                continue
            name = _proof_of_place(proof, first, place)
            noted = self._noted(name) if known else None
            if position != (before + 1 if noted is None else noted):
                self.proofs[name] = position

    def _noted(self, proof: bytes, lifetime_ms: float = EXCHANGE_LIFETIME_MS) -> int | None:
        """Return the position that is noted for a proof, whether or not the event there is given up since."""
        position = self.proofs.get(proof)
        return self.proofs_known.position(proof, self.monotonic, lifetime_ms) if position is None else position

    def _counts(self, position: int) -> bool:
        """Whether an event is kept or remembered: what is given up may come again."""
        return position >= self.first_position or not self.known.is_forgotten(position)

    def _label(self, position: int) -> Label:
        if position >= self.epoch_first:
            return Label(self.epoch, position - self.epoch_first + 1)
        return self.epochs.label(position)


def _proof_of_place(proof: bytes, first: int, place: int) -> bytes:
    """Return the proof of one event of a delivery that does not lie behind the one before it."""
    named = proof + first.to_bytes(8, "big") + place.to_bytes(4, "big")
    return blake2b(named, digest_size=len(proof), person=_PLACE_PERSON).digest()
