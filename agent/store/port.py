"""The interfaces of the store for the pipeline (`Intake`) and for the forwarder (`Outbox`), with their guarantees.

Candidate, Submission, Outcome and StoredEvent, which are made for each event, have a written `__init__` (decision 14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, final

from contract.event import Event, Label
from contract.fingerprint import IDENTITY_FIELDS
from contract.record import ClockTrust, SharedDay


@final
@dataclass(slots=True, init=False)
class Candidate:
    """A valid event to be stored; times are milliseconds since 1970 UTC."""

    event: Event
    fingerprint: bytes | None
    """None where the label joins the identity: the store computes it with the label."""
    tail: bytes
    """The record's value without fingerprint and label (contract.record.encode_tail)."""
    received: int
    clock: ClockTrust
    shared: SharedDay
    bound: int | None
    similarity_key: int | None
    """Hash of the fields that a suspected duplicate would share; None where equal data raises no suspicion."""
    similarity_seconds: float | None
    """How long an equal key raises suspicion, where that is less than `identity.resend_window`."""
    fields: tuple[str, ...]
    """The fields that make the identity."""
    retransmission_key: bytes | None
    """16 bytes over the content of an event without an identity of its own: an equal key proves a duplicate."""
    retransmission_seconds: float
    """For how long after the first one it does."""

    def __init__(  # noqa: PLR0913, PLR0917  # its fields
        self,
        event: Event,
        fingerprint: bytes | None,
        tail: bytes,
        received: int,
        clock: ClockTrust,
        shared: SharedDay,
        bound: int | None,
        similarity_key: int | None = None,
        similarity_seconds: float | None = None,
        fields: tuple[str, ...] = IDENTITY_FIELDS,
        retransmission_key: bytes | None = None,
        retransmission_seconds: float = 0.0,
    ) -> None:
        self.event = event
        self.fingerprint = fingerprint
        self.tail = tail
        self.received = received
        self.clock = clock
        self.shared = shared
        self.bound = bound
        self.similarity_key = similarity_key
        self.similarity_seconds = similarity_seconds
        self.fields = fields
        self.retransmission_key = retransmission_key
        self.retransmission_seconds = retransmission_seconds


@dataclass(frozen=True, slots=True)
class Reject:
    """An invalid event from a body that decodes."""

    device: str
    via: str
    received: int
    reason: str
    raw: bytes


@final
@dataclass(slots=True, init=False)
class Submission:
    """The events of one delivery, which are stored in one transaction."""

    candidates: tuple[Candidate, ...]
    rejects: tuple[Reject, ...]
    retransmission_key: bytes | None
    """16 bytes over all that the transport repeats in a retransmission; None where that identifies nothing."""
    done: Callable[[Outcome], None]
    uptime_ms: int | None
    """When the events were accepted, since the machine was booted; None where the clock was trusted."""
    is_part: bool
    """Whether events of the same delivery are in other lanes."""
    refusal: str
    """Why no new event of it is stored; empty where any may be."""

    def __init__(
        self,
        candidates: tuple[Candidate, ...],
        rejects: tuple[Reject, ...],
        retransmission_key: bytes | None,
        done: Callable[[Outcome], None],
        uptime_ms: int | None = None,
        is_part: bool = False,
        refusal: str = "",
    ) -> None:
        self.candidates = candidates
        self.rejects = rejects
        self.retransmission_key = retransmission_key
        self.done = done
        self.uptime_ms = uptime_ms
        self.is_part = is_part
        self.refusal = refusal


@final
@dataclass(slots=True, init=False)
class Outcome:
    """The outcome of a submission: durable as a whole, or refused as a whole."""

    accepted: int
    duplicates: int
    fingerprints: tuple[bytes, ...]
    new: tuple[bool, ...]
    """Whether each event is new, and stored even with `refusal`, where another lane refuses; where empty, none is."""
    suspected: tuple[bytes, ...]
    """The fingerprints of new events that name an earlier one in `possible_duplicate_of`."""
    refusal: str
    """Why nothing was stored; empty where all is durable."""
    retry_seconds: int

    def __init__(
        self,
        accepted: int = 0,
        duplicates: int = 0,
        fingerprints: tuple[bytes, ...] = (),
        new: tuple[bool, ...] = (),
        suspected: tuple[bytes, ...] = (),
        refusal: str = "",
        retry_seconds: int = 0,
    ) -> None:
        self.accepted = accepted
        self.duplicates = duplicates
        self.fingerprints = fingerprints
        self.new = new
        self.suspected = suspected
        self.refusal = refusal
        self.retry_seconds = retry_seconds


class Intake(Protocol):
    """The store as the pipeline uses it."""

    def submit(self, submission: Submission) -> None:
        """Store a submission; thread-safe, never blocks.

        `done` is called once, in the event loop's thread: with a durable outcome only after the events survive a
        power cut (WAL, synchronous=FULL). Whether an event is new or a duplicate is decided in the same transaction
        that stores it; a duplicate of an event in progress shares that transaction's outcome.
        """


NO_LABEL: Final = Label("", 0)


@final
@dataclass(slots=True, init=False)
class StoredEvent:
    """A stored event, its checksum verified."""

    position: int
    """The event's place in the store, over all epochs; never reused."""
    fingerprint: bytes
    tail: bytes
    clock: ClockTrust
    shared: SharedDay
    bound: int | None
    label: Label
    """Follows from the position and the epochs; NO_LABEL where those were not looked at."""

    def __init__(
        self,
        position: int,
        fingerprint: bytes,
        tail: bytes,
        clock: ClockTrust,
        shared: SharedDay,
        bound: int | None,
        label: Label = NO_LABEL,
    ) -> None:
        self.position = position
        self.label = label
        self.fingerprint = fingerprint
        self.tail = tail
        self.clock = clock
        self.shared = shared
        self.bound = bound


@dataclass(frozen=True, slots=True)
class LabelRange:
    """The sequences from first to last in one epoch."""

    epoch: str
    first: int
    last: int

    def holds(self, epoch: str, sequence: int) -> bool:
        return self.epoch == epoch and self.first <= sequence <= self.last


@dataclass(frozen=True, slots=True)
class ClosedSection:
    """The sequences from first to last of one epoch, with the digest of their events (`contract.chain`)."""

    first: int
    last: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Offsets:
    """The lowest and highest offset that a batch has in one partition."""

    lowest: int
    highest: int
    leader_epoch: int | None = None
    """The leader epoch in which all of it was appended; None where unknown."""

    def united(self, other: Offsets) -> Offsets:
        """Return the offsets that hold both, of one leader epoch."""
        return Offsets(min(self.lowest, other.lowest), max(self.highest, other.highest), self.leader_epoch)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that the broker has: the positions from first to last, both included."""

    first: int
    last: int
    topic_id: str
    partitions: Mapping[int, Offsets] = field(default_factory=dict)


class OutboxError(Exception):
    """The store cannot do this now, as on a full disk: try again later."""


class Outbox(Protocol):
    """The store as the forwarder and the receipts use it; every method is thread-safe.

    Methods that use the disk raise OutboxError where it refuses. The state of an event follows from the batch that
    covers its position: without one it is `new`, else `forwarded` or `processed` as the batch is.
    """

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Return the next `new` events with a position above `after`, in order, at least one where there is one.

        Positions start at 1, so that `after=0` reads from the first. The events have consecutive positions, so that
        they can become one batch. An event that cannot be read any more is given up, and declared by another event.
        """

    def end(self) -> int:
        """Return the highest position that an event has had."""

    def wait(self, after: int, seconds: float) -> bool:
        """Wait for a `new` event above `after` or a returned batch; return False where the time is over."""

    def pop_returned(self) -> bool:
        """Whether batches were returned since the last call; if so, start again from the lowest new event."""

    def epoch(self) -> str:
        """Return the epoch of this opening: no other opening, of this store or of a copy of it, has ever had it."""

    def has_epoch(self, epoch: str) -> bool:
        """Whether events were stored in an epoch of this store."""

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        """Mark a batch forwarded; a crash may lose the mark, which repeats sends and loses no event (decision 4).

        `note` is a fact that is written in the same transaction as the mark.
        """

    def forwarded(self) -> Sequence[Batch]:
        """Return the batches that wait for their receipt, in order."""

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        """Mark batches processed: the table has them, and they may be purged."""

    def return_batches(self, batches: Sequence[Batch]) -> None:
        """Make forwarded batches `new` again, so that the forwarder sends them again."""

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        """Return the labels of the positions from first to last, whether or not their events are kept."""

    def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
        """Mark `new` events processed before they are sent, and purge them, with a fact in the same transaction.

        Return True once that is on disk: `read` never returns them again. Return False with nothing changed where some
        of them are no longer new, since a full store has dropped them. Raise with nothing changed.
        """

    def give_up(self, position: int, reason: str) -> None:
        """Make a gap of an event that Kafka can never take, new or released; return once that is on disk.

        Its fingerprint and its retransmission key are forgotten in the same transaction, so that the sensor's resend
        is stored as new. Another event declares the gap: where this raises, the event may be given up already, and the
        next commit declares it.
        """

    def expire(self, first: int, last: int, lifetime_seconds: float) -> int:
        """Make a gap of the first of these `new` events beyond this age; return how many, once on disk.

        The age is running time of the agent. Otherwise as `give_up`.
        """

    def fact(self, name: str) -> str | None:
        """Return a durable fact, such as the id of the pinned table; None where it was never written."""

    def set_fact(self, name: str, value: str) -> None:
        """Write a durable fact; return once it is on disk."""
