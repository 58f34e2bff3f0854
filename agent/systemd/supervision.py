"""What systemd is told: ready once the agent can store and answer, and alive for as long as its commit loop turns."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Protocol

from agent.store.errors import DiskFullError
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.schema import disk_space
from agent.systemd.notify import Notifier

log = logging.getLogger(__name__)

TRIAL_SECONDS = 5.0
"""The pause before the next trial, where the store cannot write yet."""
ROOM_SECONDS = 2.0
"""The pause between two looks at the file system, while the store waits for room."""
ROOM_GROWTH = 8
"""Where less than all the needed room is there, another trial takes as much as the last one and an eighth of that: a
trial writes until the disk is full, and a card wears out."""
TURNS_PER_WATCHDOG = 3
"""How many times within the watchdog's time the commit loop is asked to turn."""


class Store(Protocol):
    """The store as the supervision sees it."""

    def trial(self) -> str:
        """Say why nothing can be stored now, empty where a trial write is on disk; blocks."""

    def counts(self) -> tuple[int, int, int, int]:
        """Count the events that are new, forwarded, processed."""

    async def turn(self) -> None:
        """Return once the commit loop has come round: what was queued before is on disk, or refused."""


async def supervise(notifier: Notifier, store: Store, ways_in: str) -> None:
    """Tell systemd how we are until cancelled.

    The watchdog is fed only after the commit loop has taken a task that we queue behind the events: no timer of its
    own feeds it, so a disk that hangs ends the process, whatever else still runs.
    """
    if not notifier.listening:
        return
    trouble = await asyncio.to_thread(store.trial)
    while trouble:
        notifier.status(f"cannot store: {trouble}")
        await asyncio.sleep(TRIAL_SECONDS)
        trouble = await asyncio.to_thread(store.trial)
    notifier.ready(ways_in)
    if notifier.watchdog_seconds is None:
        return
    while True:
        await store.turn()
        notifier.alive()
        new, forwarded, processed, _ = store.counts()
        notifier.status(f"{ways_in}; {new} new, {forwarded} forwarded, {processed} processed")
        await asyncio.sleep(notifier.watchdog_seconds / TURNS_PER_WATCHDOG)


async def wait_for_room(error: DiskFullError, folder: Path, asked_to_stop: asyncio.Event) -> None:
    """Wait until another trial to open the store may succeed, or until told to stop; the process stays alive."""
    log.error("store=waiting reason=%r bytes_needed=%d bytes_free=%d", str(error), error.bytes_needed, error.bytes_free)
    notifier, path = Notifier(), folder / FILE_NAME
    wanted = min(error.bytes_needed, error.bytes_free + max(error.bytes_free // ROOM_GROWTH, PAGE_BYTES))
    while True:
        notifier.waits(f"cannot store: {error}")
        try:
            await asyncio.wait_for(asked_to_stop.wait(), ROOM_SECONDS)
            return
        except TimeoutError:
            if disk_space.free_bytes(path) >= wanted and disk_space.takes(path, wanted):
                return
