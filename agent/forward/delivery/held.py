"""The durable fact that events are held since Kafka refuses them for their size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class HeldEvent:
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


def write_held(held: Mapping[int, HeldEvent]) -> str:
    """Return the fact's text: the held events by position."""
    return json.dumps({position: asdict(event) for position, event in held.items()})


def read_held(fact: str | None) -> dict[int, HeldEvent]:
    """Return the held events by position, as the fact has them."""
    return {int(position): HeldEvent(**event) for position, event in json.loads(fact or "{}").items()}
