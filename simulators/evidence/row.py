"""A row: what a sensor said, as it is found at the end of the path."""

from __future__ import annotations

from typing import NamedTuple

from contract.event import Value


class Row(NamedTuple):
    """One row of a sensor's event; what the place where it was found does not tell is None."""

    device: str
    type: str
    id: str | None
    time: int | None
    """Milliseconds since 1970 UTC."""
    data: Value
    boot: str | None = None
    epoch: str | None = None
    sequence: int | None = None
    partition: int | None = None
    offset: int | None = None
    fingerprint: str | None = None
    """32 hex digits; never used to tell events apart, only to ask the agent for its trace."""
    at: int | None = None
    """When it got there, in milliseconds since 1970 UTC."""
