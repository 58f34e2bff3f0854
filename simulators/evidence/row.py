"""A row: what a sensor said, as it is found at the end of the path."""

from __future__ import annotations

from typing import NamedTuple

from contract.event import Value


class Row(NamedTuple):
    """A sensor's event as a row or a record has it; what the place where it was found does not tell is None."""

    device: str
    type: str
    id: int | str | None
    """In a table always text."""
    time: int | None
    """Milliseconds since 1970 UTC."""
    data: Value
    boot: int | str | None = None
    """In a table always text."""
    epoch: str | None = None
    sequence: int | None = None
    partition: int | None = None
    offset: int | None = None
    fingerprint: str | None = None
    """32 hex digits; compared between row and record, and never used to tell events apart."""
    at: int | None = None
    """When it got there, in milliseconds since 1970 UTC."""
    gateway: str | None = None
