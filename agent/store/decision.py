"""What one commit will hold: for each submission, which events are new and which are copies."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.store.fingerprints import Fingerprints
from agent.store.known import EXCHANGE_LIFETIME_MS, Likenesses, Proofs, Rejections
from agent.store.packing import pack_fields
from agent.store.port import Candidate, Outcome, Reject, Submission
from agent.store.reader import Epochs
from contract.event import Label
from contract.fingerprint import fingerprint as compute_fingerprint

STORE_FULL = "the store is full: it keeps every event until the table has it"
FULL_RETRY_SECONDS = 60
"""When a sensor may try again while the store is full: receipts make room every poll."""


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
        repeated = None if submission.proof is None else self._proven(submission.proof)
        if repeated is not None:
            self._add_retransmission(submission, repeated)
            return
        if self.refusal and None in map(self._position, submission.candidates):
            self.at_once.append((submission, Outcome(refusal=self.refusal, retry_seconds=FULL_RETRY_SECONDS)))
            return
        self._add_events(submission)

    def _add_retransmission(self, submission: Submission, position: int) -> None:
        count = len(submission.candidates)
        self.duplicates.extend((b"", position + place) for place in range(count))
        self._answer(submission, Outcome(duplicates=count), in_work=position >= self.first_position)

    def _add_events(self, submission: Submission) -> None:
        start = self.next_position
        given: list[bytes] = []
        new: list[bool] = []
        suspected = len(self.suspected)
        in_work, labelled = False, False
        for candidate in submission.candidates:
            position = self._position(candidate)
            new.append(position is None)
            if position is None:
                labelled |= candidate.fingerprint is None
                given.append(self.add_new(candidate))
            else:
                fingerprint = candidate.fingerprint or compute_fingerprint(
                    candidate.event, candidate.fields, self._label(position)
                )
                in_work |= position >= self.first_position
                self.duplicates.append((fingerprint, position))
                given.append(fingerprint)
        accepted = self.next_position - start
        rejects = (
            submission.rejects
            if accepted or not given
            else tuple(filter(self.rejections_known.is_new, submission.rejects))
        )
        self.rejects.extend(rejects)
        if labelled and submission.proof is not None:
            self.proofs[submission.proof] = start
        in_work |= accepted > 0 or bool(rejects)
        outcome = Outcome(accepted, len(given) - accepted, tuple(given), tuple(new), tuple(self.suspected[suspected:]))
        self._answer(submission, outcome, in_work=in_work)

    def add_new(self, candidate: Candidate) -> bytes:
        """Give a new event its place, and its fingerprint back."""
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

    def _position(self, candidate: Candidate) -> int | None:
        if candidate.fingerprint is None:
            return None if candidate.proof is None else self._proven(candidate.proof, candidate.proof_seconds * 1000)
        position = self.fingerprints.get(candidate.fingerprint)
        return self.known.position(candidate.fingerprint) if position is None else position

    def _label(self, position: int) -> Label:
        if position >= self.epoch_first:
            return Label(self.epoch, position - self.epoch_first + 1)
        return self.epochs.label(position)

    def _proven(self, proof: bytes, lifetime_ms: float = EXCHANGE_LIFETIME_MS) -> int | None:
        position = self.proofs.get(proof)
        if position is None:
            position = self.proofs_known.position(proof, self.monotonic, lifetime_ms)
            return None if position is None or self.known.is_forgotten(position) else position
        return position

    def _answer(self, submission: Submission, outcome: Outcome, *, in_work: bool) -> None:
        (self.after_commit if in_work else self.at_once).append((submission, outcome))
