"""What an exactly-once gateway remembers of its latest transaction: the intent in its store, the marker in Kafka.

The intent is written between the broker's acks and the commit, and says which events are where. The marker is the
metadata of an offset that the transaction commits together with the records: it tells who was the last to commit.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict, dataclass

from agent.forward.receipts.truncation import Found
from agent.store.port import Batch, LabelRange, Offsets
from contract.event import Label

GROUP_PREFIX = "oncegate-outbox-"
NUMBER_DIGITS = 20
_MARKER = re.compile(rb"([0-9a-f]{16}):([0-9]{1,20})")
_FIXED_MARKER = re.compile(rb"([0-9a-f]{16}):([0-9]{20})")


@dataclass(frozen=True, slots=True)
class Marker:
    """A transaction's name: the epoch of the opening that began it, and its number."""

    epoch: str
    number: int

    def __str__(self) -> str:
        """Write the metadata: of one width, so that whatever the client reads beyond its end can be cut off."""
        return f"{self.epoch}:{self.number:0{NUMBER_DIGITS}}"


def parse_marker(metadata: bytes) -> Marker | None:
    """Read the metadata, cut off what cannot belong to it; None where it is no marker."""
    found = _FIXED_MARKER.match(metadata) or _MARKER.match(metadata)
    return None if found is None else Marker(found[1].decode(), int(found[2]))


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that is to be committed, or was."""

    marker: Marker
    previous: Marker | None
    """What stood in Kafka when this was written, and stands there still if the transaction fails."""
    batch: Batch
    """Its events, and where the broker has put them."""
    labels: tuple[Label, Label]
    """Of the first and of the last event."""

    def __str__(self) -> str:
        """Write the fact."""
        return json.dumps(asdict(self))

    def holds(self, gateway: str, found: Found) -> bool:
        """Whether a label is one of these events'; those of openings between the two ends are not known."""
        first, last = self.labels
        if first.epoch == last.epoch:
            ranges = [LabelRange(first.epoch, first.sequence, last.sequence)]
        else:
            ranges = [LabelRange(first.epoch, first.sequence, sys.maxsize), LabelRange(last.epoch, 0, last.sequence)]
        return found.is_in(gateway, ranges)


def read_intent(fact: str | None) -> Intent | None:
    """Read the fact; None where there was no transaction yet, or only one of the first form, which had no offsets."""
    document = json.loads(fact or "{}")
    if "batch" not in document:
        return None
    previous, batch = document["previous"], document["batch"]
    partitions = {int(partition): Offsets(**offsets) for partition, offsets in batch.pop("partitions").items()}
    return Intent(
        Marker(**document["marker"]),
        None if previous is None else Marker(**previous),
        Batch(**batch, partitions=partitions),
        (Label(**document["labels"][0]), Label(**document["labels"][1])),
    )
