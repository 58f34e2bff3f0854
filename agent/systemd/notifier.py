"""What systemd is told: sd_notify(3), ready once the agent answers and has tried to store, alive while it commits."""

import asyncio
import logging
import os
import select
import socket
from array import array
from collections.abc import Mapping
from pathlib import Path

from agent.store.errors import DiskFullError
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME, PAGE_BYTES
from agent.store.schema import disk_space

log = logging.getLogger(__name__)

SALVAGE_SECONDS_MAX = 3_600
"""How long the salvage of a store of any size may take."""
BARRIER_SECONDS_MAX = 5.0
"""How long to wait until systemd has processed notifications."""
_MICROSECONDS = 1_000_000
_ABSTRACT = "@"
STATUS_SECONDS = 20.0
"""The interval of the status without a watchdog."""
SPACE_SECONDS = 2.0
"""The wait between two checks of the file system, while the store waits for space."""
SPACE_GROWTH = 8
"""While less space than needed is free, the next attempt requires an eighth more than the last one had: it writes until
the disk is full, which wears the card."""
TURNS_PER_WATCHDOG = 3
"""How many times within the watchdog's interval the commit loop is checked."""


class Notifier:
    """The socket of the service manager; failures to send are only logged."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        interval, process = environment.get("WATCHDOG_USEC", ""), str(os.getpid())
        is_watched = interval.isdigit() and environment.get("WATCHDOG_PID", process) == process
        self.watchdog_seconds = int(interval) / _MICROSECONDS if is_watched else None
        """The watchdog's interval for this process (sd_watchdog_enabled(3)); None where there is no watchdog."""

    @property
    def listening(self) -> bool:
        """Whether systemd has named a socket."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        watched = () if self.watchdog_seconds is None else (_watchdog(self.watchdog_seconds),)
        self.tell("READY=1", f"STATUS={status}", *watched)

    def busy(self, status: str) -> None:
        """Extend the watchdog's interval until the service is ready again."""
        if self.watchdog_seconds is not None:
            self.tell(f"STATUS={status}", _watchdog(SALVAGE_SECONDS_MAX))

    def tell(self, *assignments: str) -> None:
        """Set the STATUS of `systemctl status`, feed the watchdog by WATCHDOG=1, or report the end by STOPPING=1."""
        self._send("\n".join(assignments))

    def keep(self, name: str, descriptor: int) -> None:
        """Have a descriptor kept, under a name, and passed to the service when it starts again."""
        self._send(f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}", descriptor)

    def forget(self, name: str) -> None:
        """Have the descriptors of a name closed, and wait until they are."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")
        reading, writing = os.pipe()
        self._send("BARRIER=1", writing)  # which the manager closes after what was sent before
        os.close(writing)
        select.select([reading], [], [], BARRIER_SECONDS_MAX)
        os.close(reading)

    def _send(self, message: str, *descriptors: int) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith(_ABSTRACT) else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
                sender.sendmsg([message.encode()], passed, 0, address)  # send_fds ignores the address
        except OSError as error:
            log.warning("systemd=unreachable reason=%r", str(error))


def _watchdog(seconds: float) -> str:
    return f"WATCHDOG_USEC={round(seconds * _MICROSECONDS)}"


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
