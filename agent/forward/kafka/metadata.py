"""The metadata of committed offsets, as the client gives it."""

from __future__ import annotations

from typing import Protocol


class WithMetadata(Protocol):
    """A committed offset, as far as its metadata goes."""

    @property
    def metadata(self) -> str | None:
        """Return the metadata; raise UnicodeDecodeError where it is no text."""


def raw_metadata(committed: WithMetadata) -> bytes:
    """Return the bytes, maybe with some that do not belong to it.

    librdkafka copies the metadata without its closing NUL, and the Python client takes it for a C string (2.16). So a
    reader has to know where it ends.
    """
    try:
        return (committed.metadata or "").encode()
    except UnicodeDecodeError as error:
        return bytes(error.object)
