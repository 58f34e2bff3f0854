"""What an exactly-once gateway remembers of its latest transaction: the intent in its store, the marker in Kafka.

The marker is the metadata of an offset that the transaction commits together with the records, so that it is there if
and only if they are. The intent is written before the transaction and says which events are in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from agent.forward.topic import LogEnd
from agent.store.port import Batch, Offsets
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
    """A transaction that is to be made, or was."""

    marker: Marker
    previous: Marker | None
    """What stood in Kafka when this was written, and stands there still if the transaction fails."""
    first: int
    last: int
    labels: tuple[Label, Label]
    """Of the first and of the last event."""
    topic_id: str
    lower: Mapping[int, int]
    """For each partition an offset that none of its records lies below."""

    def __str__(self) -> str:
        """Write the fact."""
        return json.dumps(asdict(self))

    def recovered(self, first: int, last: int, ends: Mapping[int, LogEnd]) -> Batch:
        """Give a batch of events of it whose delivery reports nobody has: their records lie between the bounds."""
        spans = {
            partition: Offsets(lower, end.offset - 1, end.leader_epoch)
            for partition, end in sorted(ends.items())
            if end.offset > (lower := self.lower.get(partition, 0))
        }
        return Batch(first, last, self.topic_id, spans)


def read_intent(fact: str | None) -> Intent | None:
    """Read the fact; None where there was no transaction yet."""
    if not fact:
        return None
    document = json.loads(fact)
    previous = document["previous"]
    return Intent(
        Marker(**document["marker"]),
        None if previous is None else Marker(**previous),
        document["first"],
        document["last"],
        (Label(**document["labels"][0]), Label(**document["labels"][1])),
        document["topic_id"],
        {int(partition): offset for partition, offset in document["lower"].items()},
    )
