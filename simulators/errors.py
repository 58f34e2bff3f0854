"""The errors of a run."""

from __future__ import annotations


class RunError(Exception):
    """A run ended without a verdict; the message includes the log that explains why."""
