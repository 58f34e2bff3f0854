"""Name what can go wrong with a run."""

from __future__ import annotations


class RunError(Exception):
    """What kept the run from its verdict; the message shows the log that explains it."""
