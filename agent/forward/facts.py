"""The durable facts of forwarding: what is in doubt, what Kafka has refused, whether receipts are held."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from contract.notes import read_note


@dataclass(frozen=True, slots=True)
class InDoubtBatches:
    """The batch in flight, and how many events of earlier ones may be lost."""

    first: int = 0
    last: int = -1
    """Positions in flight; none where last is below first."""
    lost_max: int = 0
    """Events that were in flight when a connection or the agent ended, since the store was created."""

    @property
    def in_flight(self) -> int:
        return self.last - self.first + 1

    def __str__(self) -> str:
        return json.dumps([self.first, self.last, self.lost_max])


def read_in_doubt(fact: str | None) -> InDoubtBatches:
    """Return the state that a fact holds; nothing is in doubt where there is none."""
    return InDoubtBatches(*json.loads(fact)[:3]) if fact else InDoubtBatches()


@dataclass(frozen=True, slots=True)
class OversizedEvent:
    """An event that Kafka has refused and that is tried again."""

    size: int
    """Of the record's value, in bytes."""
    since: int
    """When it was refused first, in milliseconds since 1970 UTC by the gateway's clock; for display only."""
    own: bool
    """Whether it is the gateway's own, which are never given up: they are small, so the limit is wrong, and giving up
    the declaration of a gap would require another declaration."""
    refused_ms: int = 0
    """For how long Kafka has refused it, counting only the time in which a broker answered."""


def write_oversized(held: Mapping[int, OversizedEvent]) -> str:
    """Return the fact's text: the held events by position."""
    return json.dumps({position: asdict(event) for position, event in held.items()})


def read_oversized(fact: str | None) -> dict[int, OversizedEvent]:
    """Return the held events by position, as the fact has them."""
    return {int(position): read_note(OversizedEvent, event) for position, event in json.loads(fact or "{}").items()}


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold of receipts: since when the group's commits do not count, and why."""

    since: int
    """In milliseconds since 1970 UTC, by the gateway's clock."""
    reason: str

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def read_hold(fact: str | None) -> Hold | None:
    """Return the hold that a fact describes; None where receipts are not held."""
    return read_note(Hold, json.loads(fact)) if fact else None
