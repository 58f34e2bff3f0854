"""What is known about an event, by where it is known from; times are in milliseconds since 1970 UTC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Label:
    """A gateway's count of an event."""

    gateway: str
    epoch: str
    sequence: int

    def __str__(self) -> str:
        """Return the words as they are given to the command."""
        return f"{self.gateway} {self.epoch} {self.sequence}"


@dataclass(frozen=True, slots=True)
class Span:
    """The events of a device in a time; `until` is None for up to now."""

    device: str
    since: int
    until: int | None

    def has(self, moment: int) -> bool:
        return self.since <= moment and (self.until is None or moment < self.until)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The event that is asked for: by its fingerprint or by a label."""

    fingerprint: str | None = None
    label: Label | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    fingerprint: str
    device: str
    label: Label
    id: str | None
    time: int
    """The event's, or else that of its acceptance."""
    partition: int
    offset: int
    processed: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the topic, by its headers."""

    partition: int
    offset: int
    appended: int
    device: str
    fingerprint: str | None
    label: Label | None
    time: int | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record in quarantine."""

    topic_id: str
    partition: int
    offset: int
    reason: str
    at: int


@dataclass(frozen=True, slots=True)
class TopicSearch:
    """What was found in the topic, and where it was looked for."""

    topic: str
    topic_id: str
    records: Sequence[Record] = ()
    """In the order of their append."""
    ends: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """By partition: the earliest offset of the topic, the first that was read, and the end."""
    earliest: int | None = None
    """The append of the first record that was read."""
    finished: bool = True

    @property
    def read_all(self) -> bool:
        """Whether every record that the topic has was read."""
        return self.finished and all(first <= earliest for earliest, first, _ in self.ends.values())


@dataclass(frozen=True, slots=True)
class Gap:
    """Labels that a gateway has declared as lost."""

    reason: str
    declared: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """What the table knows of a gateway and an epoch of it."""

    last: int | None
    """The highest sequence in the table; None where it has no event of the epoch."""
    ended: int | None
    """The last sequence, as the next epoch states it."""
    knows_gateway: bool


@dataclass(frozen=True, slots=True)
class Audited:
    """What the latest audit has stored about an event."""

    ends: Mapping[int, int]
    """Offsets up to which it has read the topic."""
    statuses: Sequence[str] = ()
    """The statuses of the label."""
    duplicate_of: Label | None = None
    unwritten: tuple[int, int] | None = None
    """Partition and offset of the unwritten record."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about one event."""

    wanted: Wanted
    group: str
    rows: Sequence[Row]
    quarantined: Sequence[Quarantined]
    search: TopicSearch
    receipts: Mapping[int, int | str]
    """By partition the offset that a group has committed, or why it is no receipt of the table."""
    gaps: Sequence[Gap] = ()
    epoch: EpochFacts | None = None
    """None where no label is known."""
    audited: Audited | None = None
    """None where no audit is named."""
