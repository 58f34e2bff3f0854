"""A sensor's event as found at the end of the path."""

from typing import NamedTuple

from contract.event import Value


class Row(NamedTuple):
    """A sensor's event from a row or a record; fields that its source does not have are None."""

    device: str
    type: str
    id: int | str | None
    """Always text in a table."""
    time: int | None
    """Milliseconds since 1970 UTC."""
    data: Value
    boot: int | str | None = None
    """Always text in a table."""
    epoch: str | None = None
    sequence: int | None = None
    partition: int | None = None
    offset: int | None = None
    fingerprint: str | None = None
    """32 hex digits; compared between row and record, and never used to distinguish events."""
    at: int | None = None
    """Time of arrival, in milliseconds since 1970 UTC."""
    gateway: str | None = None
