"""The durable records of an exactly-once gateway's latest transaction: the intent in its store, the marker in Kafka.

The intent is written between the broker's acks and the commit, and holds which events are at which offsets. The marker
is the metadata of an offset that the transaction commits together with the records: it identifies the last committer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

from agent.forward.receipts.truncation import RecordLabel
from agent.store.port import Batch, LabelRange, Offsets, StoredEvent
from contract.event import Label

GROUP_PREFIX = "oncegate-outbox-"
"""Before the transactional id: the group of its markers."""
NUMBER_DIGITS = 20
_MARKER = re.compile(rb"([0-9a-f]{16}):([0-9]{20})")


@dataclass(frozen=True, slots=True)
class Marker:
    """A transaction's name: the epoch of the opening that began it, and its number."""

    epoch: str
    number: int

    def __str__(self) -> str:
        """Return the metadata, of fixed width, so that bytes that the client reads beyond its end can be cut off."""
        return f"{self.epoch}:{self.number:0{NUMBER_DIGITS}}"


def parse_marker(metadata: bytes) -> Marker | None:
    """Return the marker at the metadata's beginning; None where there is none."""
    found = _MARKER.match(metadata)
    return None if found is None else Marker(found[1].decode(), int(found[2]))


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that is to be committed, or was."""

    marker: Marker
    previous: Marker | None
    """The marker in Kafka when this was written; it remains there if the transaction fails."""
    batch: Batch
    """Its events, and their offsets."""
    labels: tuple[LabelRange, ...]
    """Of its events, by epoch, in their order."""

    @property
    def ends(self) -> tuple[Label, Label]:
        """Return the labels of the first and of the last event."""
        first, last = self.labels[0], self.labels[-1]
        return Label(first.epoch, first.first), Label(last.epoch, last.last)

    def __str__(self) -> str:
        """Return the fact's text."""
        return json.dumps(asdict(self))

    def holds(self, gateway: str, label: RecordLabel) -> bool:
        """Whether a label is one of these events'."""
        return label.is_in(gateway, self.labels)


def label_ranges(events: Sequence[StoredEvent]) -> tuple[LabelRange, ...]:
    """Return the labels of events in their order, by epoch: each start of the agent has begun one."""
    first, last = events[0].label, events[-1].label
    if first.epoch == last.epoch:
        return (LabelRange(first.epoch, first.sequence, last.sequence),)
    ranges = []
    for epoch, of_epoch in groupby((event.label for event in events), lambda label: label.epoch):
        labels = list(of_epoch)
        ranges.append(LabelRange(epoch, labels[0].sequence, labels[-1].sequence))
    return tuple(ranges)


def read_intent(fact: str | None) -> Intent | None:
    """Return the intent that a fact holds; None where there was no transaction yet."""
    if not fact:
        return None
    document = json.loads(fact)
    previous, batch = document["previous"], document["batch"]
    partitions = {int(partition): Offsets(**offsets) for partition, offsets in batch.pop("partitions").items()}
    return Intent(
        Marker(**document["marker"]),
        None if previous is None else Marker(**previous),
        Batch(**batch, partitions=partitions),
        tuple([LabelRange(**labels) for labels in document["labels"]]),
    )
