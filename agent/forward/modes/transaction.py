"""The durable records of an exactly-once gateway's latest transaction: the intent in its store, the marker in Kafka.

The intent is written between the broker's acks and the commit, and holds which events are at which offsets. The marker
is the metadata of an offset that the transaction commits together with the records: it identifies the last committer.
"""

import json
import re
from dataclasses import asdict, dataclass

from agent.store.port import Batch, LabelRange, Offsets
from contract.event import Label
from contract.notes import read_note

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

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def holds(self, label: Label) -> bool:
        return any(labels.holds(label.epoch, label.sequence) for labels in self.labels)


def read_intent(fact: str | None) -> Intent | None:
    """Return the intent that a fact holds; None where there was no transaction yet."""
    if not fact:
        return None
    document = json.loads(fact)
    previous, batch = document["previous"], document["batch"]
    partitions = {int(partition): read_note(Offsets, offsets) for partition, offsets in batch["partitions"].items()}
    return Intent(
        read_note(Marker, document["marker"]),
        None if previous is None else read_note(Marker, previous),
        read_note(Batch, {**batch, "partitions": partitions}),
        tuple([read_note(LabelRange, labels) for labels in document["labels"]]),
    )
