"""What the faults of a run require of its sensors' reports."""

from __future__ import annotations

import asyncio


class Reports:
    """Sensors report until no fault needs them any longer, and pause while a card is being replaced."""

    def __init__(self) -> None:
        self.enabled = asyncio.Event()
        self.enabled.set()
        self.suffice = asyncio.Event()
        """Set once every fault has been played, with reports after it where it needs some."""

    def pause(self) -> None:
        """Let no sensor begin a new report; transmissions of those before go on."""
        self.enabled.clear()

    def resume(self) -> None:
        """Let sensors report; those that were due follow at once."""
        self.enabled.set()
