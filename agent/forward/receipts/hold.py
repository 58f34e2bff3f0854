"""The durable fact that receipts are held: since when, and why; for commands beside the agent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Hold:
    """Commits stand where receipts should, and prove nothing."""

    since: int
    """In milliseconds since 1970 UTC, by the gateway's clock."""
    reason: str

    def __str__(self) -> str:
        """Write the fact."""
        return json.dumps(asdict(self))


def read_hold(fact: str | None) -> Hold | None:
    """Read the fact; None where receipts are not held."""
    return Hold(**json.loads(fact)) if fact else None
