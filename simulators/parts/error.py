"""Name what can go wrong with a part."""

from __future__ import annotations


class PartError(Exception):
    """Say which part could not be prepared or run, and what to do; trying again does not help by itself."""


class PartTimeoutError(PartError):
    """Say what did not happen in time; on a busy machine another try may help."""
