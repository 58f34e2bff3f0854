"""Reports to systemd: ready once the agent answers and has tried to store, alive while its commit loop runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from agent.store.errors import DiskFullError
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.schema import disk_space
from agent.systemd.notifier import Notifier

log = logging.getLogger(__name__)

STATUS_SECONDS = 20.0
"""The interval of the status without a watchdog."""
SPACE_SECONDS = 2.0
"""The wait between two checks of the file system, while the store waits for space."""
SPACE_GROWTH = 8
"""While less space than needed is free, the next attempt requires an eighth more than the last one had: it writes until
the disk is full, which wears the card."""
TURNS_PER_WATCHDOG = 3
"""How many times within the watchdog's interval the commit loop is checked."""


async def supervise(notifier: Notifier, store: LaneStores, addresses: str) -> None:
    """Notify systemd until cancelled.

    The watchdog is fed only after the commit loop has processed a task that was queued behind the events, and never by
    a timer: a hanging disk ends the process, even if everything else still runs.
    """
    if not notifier.listening:
        return
    # A store that is full, or cannot write, delays nothing: systemd watches a service only once it is ready.
    trouble = await asyncio.to_thread(store.trouble, trial=True)
    notifier.ready(_status(store, addresses, trouble))
    interval = STATUS_SECONDS if notifier.watchdog_seconds is None else notifier.watchdog_seconds / TURNS_PER_WATCHDOG
    while True:
        await store.barrier()
        notifier.tell("WATCHDOG=1")
        notifier.tell(f"STATUS={_status(store, addresses, await asyncio.to_thread(store.trouble))}")
        await asyncio.sleep(interval)


def _status(store: LaneStores, addresses: str, trouble: str) -> str:
    if trouble:
        return f"cannot store: {trouble}"
    events = store.counts()
    return f"{addresses}; {events.new} new, {events.forwarded} forwarded, {events.processed} processed"


async def wait_for_space(error: DiskFullError, folder: Path, stop: asyncio.Event) -> None:
    """Wait until another attempt to open the store may succeed, or until `stop`; the watchdog is fed meanwhile."""
    log.error("store=waiting reason=%r needed_bytes=%d free_bytes=%d", str(error), error.needed_bytes, error.free_bytes)
    notifier, path = Notifier(), folder / FILE_NAME
    wanted = min(error.needed_bytes, error.free_bytes + max(error.free_bytes // SPACE_GROWTH, PAGE_BYTES))
    while True:
        notifier.tell(f"STATUS=cannot store: {error}", "WATCHDOG=1")
        try:
            await asyncio.wait_for(stop.wait(), SPACE_SECONDS)
            return
        except TimeoutError:
            if disk_space.free_bytes(path) >= wanted and disk_space.takes(path, wanted):
                return
