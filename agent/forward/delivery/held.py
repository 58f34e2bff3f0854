"""The durable fact that events wait since Kafka refuses them for their size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """An event that waits since Kafka has refused it."""

    size: int
    """Of the record's value, in bytes."""
    since: int
    """When it was refused first, in milliseconds since 1970 UTC by the gateway's clock; for people only."""
    own: bool
    """Whether it is the gateway's own, which are never given up: they are small, so it is the limit that is wrong, and
    giving up what declares a gap would never end."""
    refused_ms: int = 0
    """For how long Kafka has refused it, as far as it was asked."""


def write_held(held: Mapping[int, Held]) -> str:
    """Write the fact: what waits, by its position."""
    return json.dumps({position: asdict(one) for position, one in held.items()})


def read_held(fact: str | None) -> dict[int, Held]:
    """Read the fact."""
    return {int(position): Held(**held) for position, held in json.loads(fact or "{}").items()}
