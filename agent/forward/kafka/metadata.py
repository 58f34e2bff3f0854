"""Reads the metadata of committed offsets."""

from __future__ import annotations

from typing import Protocol


class WithMetadata(Protocol):
    """A committed offset with its metadata."""

    @property
    def metadata(self) -> str | None:
        """Return the metadata; raise UnicodeDecodeError where it is not text."""


def raw_metadata(committed: WithMetadata) -> bytes:
    """Return the metadata's bytes, possibly followed by foreign ones.

    librdkafka copies the metadata without its closing NUL, and the Python client reads it as a C string (2.16). So the
    format itself must show where it ends.
    """
    try:
        return (committed.metadata or "").encode()
    except UnicodeDecodeError as error:
        return bytes(error.object)
