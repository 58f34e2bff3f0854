"""Name what can go wrong with a demo run."""

from __future__ import annotations


class DemoError(Exception):
    """Say what kept the demo from its verdict; the message shows the log that explains it."""
