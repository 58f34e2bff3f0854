"""The durable fact that receipts are held, since when and why; for the commands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Hold:
    """The group's commits are no receipts that count."""

    since: int
    """In milliseconds since 1970 UTC, by the gateway's clock."""
    reason: str

    def __str__(self) -> str:
        """Return the fact's text."""
        return json.dumps(asdict(self))


def read_hold(fact: str | None) -> Hold | None:
    """Return the hold that a fact describes; None where receipts are not held."""
    return Hold(**json.loads(fact)) if fact else None
