"""Reports to systemd: ready once the agent can store and answer, alive while its commit loop runs."""

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
"""The wait before the next trial write, while the store cannot write."""
SPACE_SECONDS = 2.0
"""The wait between two checks of the file system, while the store waits for space."""
SPACE_GROWTH = 8
"""While less space than needed is free, the next attempt requires an eighth more than the last one had: it writes until
the disk is full, which wears the card."""
TURNS_PER_WATCHDOG = 3
"""How many times within the watchdog's interval the commit loop is checked."""


class Store(Protocol):
    """The part of the store that the supervision uses."""

    def trial(self) -> str:
        """Return why nothing can be stored now, empty where a trial write is on disk; blocks."""

    def counts(self) -> tuple[int, int, int, int]:
        """Return the numbers of events that are new, forwarded, processed, lost."""

    async def turn(self) -> None:
        """Return once the commit loop has run: submissions queued before are on disk, or refused."""


async def supervise(notifier: Notifier, store: Store, addresses: str) -> None:
    """Notify systemd until cancelled.

    The watchdog is fed only after the commit loop has processed a task that was queued behind the events, and never by
    a timer: a hanging disk ends the process, even if everything else still runs.
    """
    if not notifier.listening:
        return
    trouble = await asyncio.to_thread(store.trial)
    while trouble:
        notifier.status(f"cannot store: {trouble}")
        await asyncio.sleep(TRIAL_SECONDS)
        trouble = await asyncio.to_thread(store.trial)
    notifier.ready(addresses)
    if notifier.watchdog_seconds is None:
        return
    while True:
        await store.turn()
        notifier.alive()
        new, forwarded, processed, _ = store.counts()
        notifier.status(f"{addresses}; {new} new, {forwarded} forwarded, {processed} processed")
        await asyncio.sleep(notifier.watchdog_seconds / TURNS_PER_WATCHDOG)


async def wait_for_space(error: DiskFullError, folder: Path, stop: asyncio.Event) -> None:
    """Wait until another attempt to open the store may succeed, or until `stop`; the watchdog is fed meanwhile."""
    log.error("store=waiting reason=%r needed_bytes=%d free_bytes=%d", str(error), error.needed_bytes, error.free_bytes)
    notifier, path = Notifier(), folder / FILE_NAME
    wanted = min(error.needed_bytes, error.free_bytes + max(error.free_bytes // SPACE_GROWTH, PAGE_BYTES))
    while True:
        notifier.waiting(f"cannot store: {error}")
        try:
            await asyncio.wait_for(stop.wait(), SPACE_SECONDS)
            return
        except TimeoutError:
            if disk_space.free_bytes(path) >= wanted and disk_space.takes(path, wanted):
                return
