"""What the store promises to the pipeline and to the forwarder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from contract.event import Event, Label
from contract.fingerprint import IDENTITY_FIELDS
from contract.record import ClockTrust, Shared


class Candidate(NamedTuple):
    """A valid event on its way into the store; moments in milliseconds since 1970 UTC.

    A tuple, as submission and outcome: made for each event, it takes a third of a frozen dataclass's time.
    """

    event: Event
    fingerprint: bytes | None
    """None where the label joins the identity: the store computes it with the label."""
    tail: bytes
    """The record's value without fingerprint and label (contract.record.encode_tail)."""
    received: int
    clock: ClockTrust
    shared: Shared
    bound: int | None
    likeness: int | None = None
    """Hash of what a suspicious copy would share; None where equal data is no reason for suspicion."""
    likeness_seconds: float | None = None
    """How long equal data is suspicious, where that is less than `identity.resend_window`."""
    fields: tuple[str, ...] = IDENTITY_FIELDS
    """Those that make the identity."""
    proof: bytes | None = None
    """16 bytes over what an event says whose label only tells it from its twin: an equal one proves a copy."""
    proof_seconds: float = 0.0
    """How long after the first copy it does."""


@dataclass(frozen=True, slots=True)
class Reject:
    """An invalid event from a body that decodes."""

    device: str
    via: str
    received: int
    reason: str
    raw: bytes


class Submission(NamedTuple):
    """One delivery's events, which are stored in one transaction, and whom to tell."""

    candidates: tuple[Candidate, ...]
    rejects: tuple[Reject, ...]
    proof: bytes | None
    done: Callable[[Outcome], None]


class Outcome(NamedTuple):
    """What became of a submission: durable as a whole, or refused as a whole."""

    accepted: int = 0
    duplicates: int = 0
    fingerprints: tuple[bytes, ...] = ()
    new: tuple[bool, ...] = ()
    """For each of the fingerprints whether its event is new; without them, all are copies."""
    suspected: tuple[bytes, ...] = ()
    """Those of new events that name an earlier one in `possible_duplicate_of`."""
    refusal: str = ""
    """Why nothing was stored; empty where all is durable."""
    retry_seconds: int = 0


class Intake(Protocol):
    """The store as the pipeline sees it."""

    def submit(self, submission: Submission) -> None:
        """Store a submission; thread-safe, never blocks.

        `done` is called once, in the event loop's thread: with a durable outcome only after the events survive a
        power cut (WAL, synchronous=FULL). Whether an event is new or a duplicate is decided in the same transaction
        that stores it; a copy of an event in work shares that transaction's outcome.
        """


class StoredEvent(NamedTuple):
    """An event as the store gives it back, its checksum verified."""

    position: int
    """Place in the gateway's own order, over all epochs; never reused."""
    label: Label
    fingerprint: bytes
    tail: bytes
    clock: ClockTrust
    shared: Shared
    bound: int | None


@dataclass(frozen=True, slots=True)
class LabelRange:
    """The sequences from first to last in one epoch."""

    epoch: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """The lowest and highest offset that a batch has in one partition."""

    lowest: int
    highest: int
    leader_epoch: int | None = None
    """The leader epoch in which all of it was appended; None where unknown, and then nothing proves it."""

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
    """The store cannot do this now, such as on a full disk: what is not done may be tried again."""


class Outbox(Protocol):
    """The store as the forwarder and the receipts see it; every method is thread-safe.

    What needs the disk raises OutboxError where that refuses. The state of an event follows from the batch that covers
    its position: none is `new`, a forwarded one is `forwarded`, a processed one is `processed`.
    """

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Return the next `new` events with a position above `after`, in order, at least one where there is one.

        Positions start at 1, so `after` of 0 reads from the first.
        The positions given are consecutive, so that they can become one batch. What cannot be read any more is
        given up on the way, and declared by an event of its own.
        """

    def wait(self, after: int, seconds: float) -> bool:
        """Wait for a `new` event above `after` or a returned batch; False where the time is over."""

    def take_returned(self) -> bool:
        """Whether batches were returned since the last call: then start again from the lowest new event."""

    def epoch(self) -> str:
        """Return the epoch of this opening: no other opening, of this store or of a copy of it, has ever had it."""

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        """Remember that the broker has a batch; a crash may forget it, which repeats sends and loses nothing.

        `note` is a fact that reaches the disk in the same transaction as the mark.
        """

    def forwarded(self) -> Sequence[Batch]:
        """Return the batches that wait for their receipt, in order."""

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        """Remember that the table has these batches: they may be purged from now on."""

    def return_batches(self, batches: Sequence[Batch]) -> None:
        """Make forwarded batches `new` again: the forwarder sends them anew."""

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        """Return the labels of the positions from first to last, kept or not."""

    def release(self, first: int, last: int, note: tuple[str, str]) -> None:
        """Be done with `new` events for good, and purge them; returns once that is on disk, with a fact beside it.

        They are never given out again, whatever happens next. Raises with nothing changed.
        """

    def give_up(self, position: int, reason: str) -> None:
        """Make a gap of an event that Kafka can never take; returns once that is on disk.

        Its fingerprint and its transport proof are forgotten in the same transaction, so that the sensor's resend is
        stored as new; an event of its own declares the gap. Raises with nothing changed.
        """

    def fact(self, name: str) -> str | None:
        """Read a durable fact, such as the pinned table id."""

    def set_fact(self, name: str, value: str) -> None:
        """Write a durable fact; returns once it is on disk."""
