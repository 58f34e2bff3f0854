"""Measures the gateway's disk: how fast it flushes, how many events it allows, and how long a card lasts."""

import asyncio
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agent import release
from agent.cli.doctor.machine import FULL_WRITES, MOUNTS, capacity_of, disk_of, existing, mount_of, text_of
from agent.cli.failures import CommandError
from agent.clock import SystemClock
from agent.config.settings import IdentitySettings, StoreSettings
from agent.identity.identify import identify
from agent.store.event_store import EventStore
from agent.store.port import Outcome, Submission
from agent.store.wear import process_bytes
from agent.terminal import size
from contract.event import Event
from contract.record import ClockTrust

SECONDS = 2.0
"""Of each of the three measurements."""
PACK = 100
FLUSH_BYTES = 4_096
FREE_BYTES_MIN = 256 << 20
FLUSH_SECONDS_MIN = 50e-6
"""A faster flush does not reach the flash memory: a cache of the disk, or of a virtual machine's host, completed it."""
_YEAR_SECONDS = 31_557_600.0
_YEARS_SHOWN_MAX = 100
"""A disk does not grow older than that for other reasons."""
_DEVICE = "urn:dev:ops:measurement"
_MODEL = Path("/proc/device-tree/model")
_PROCESSORS = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Stored:
    """What the event store achieved with commits of one size."""

    events_per_second: float
    bytes_per_event: float
    """Written to the disk."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The figures of one disk; times in seconds."""

    machine: str
    version: str
    disk: str
    capacity_bytes: int | None
    flush_median: float
    flush_99: float
    flush_max: float
    single: Stored
    pack: Stored

    @property
    def doubtful(self) -> bool:
        """Whether the flushes are too fast to have reached a disk."""
        return self.flush_median < FLUSH_SECONDS_MIN

    def years(self, stored: Stored) -> float | None:
        """Return how long the disk lasts at an event a second, None where its size or the bytes are unknown."""
        if self.capacity_bytes is None or not stored.bytes_per_event:
            return None
        return self.capacity_bytes * FULL_WRITES / stored.bytes_per_event / _YEAR_SECONDS

    def line(self) -> str:
        """Return everything in one line, to be shared."""
        flush = ", ".join(
            f"{value * 1000:.2f} ms {name}"
            for value, name in ((self.flush_median, "median"), (self.flush_99, "99 %"), (self.flush_max, "max"))
        )
        single, pack = f"{self.single.events_per_second:,.0f}/s", f"{self.pack.events_per_second:,.0f}/s"
        rates = f"events {single} one by one, {pack} in packs of {PACK}"
        parts = [self.version, self.machine, self.disk, f"flush {flush}", rates, self._wear()]
        return " | ".join(part for part in parts if part)

    def _wear(self) -> str:
        written = f"{size(self.single.bytes_per_event)} or {size(self.pack.bytes_per_event)} written an event"
        single, pack = self.years(self.single), self.years(self.pack)
        if single is None or pack is None:
            return written if self.single.bytes_per_event else ""
        years = (f"{one:.0f}" if one < _YEARS_SHOWN_MAX else f"over {_YEARS_SHOWN_MAX}" for one in (single, pack))
        return f"{written}: {' or '.join(years)} years at 1 event/s"


def measure(folder: Path, seconds: float = SECONDS) -> Measurement:
    """Measure the disk of a folder, in a folder of its own below it; raise CommandError."""
    if not folder.is_dir():
        raise CommandError(f"{folder}: there is no such folder; the agent makes it when it first runs")
    if shutil.disk_usage(folder).free < FREE_BYTES_MIN:
        raise CommandError(f"{folder}: less than {size(FREE_BYTES_MIN)} are free")
    try:
        with tempfile.TemporaryDirectory(prefix=".measure-", dir=folder) as name:
            flushes = _flushes(Path(name) / "flushes", seconds)
            single = asyncio.run(_store(Path(name) / "single", 1, seconds))
            pack = asyncio.run(_store(Path(name) / "pack", PACK, seconds))
    except OSError as error:
        hint = "; run it as root" if isinstance(error, PermissionError) else ""
        raise CommandError(f"{folder}: {error.strerror}{hint}") from error
    disk, capacity = _disk(folder)
    return Measurement(
        machine=_machine(),
        version=f"oncegate {release.version()} {release.form()}",
        disk=disk,
        capacity_bytes=capacity,
        flush_median=median(flushes),
        flush_99=flushes[len(flushes) * 99 // 100],
        flush_max=flushes[-1],
        single=single,
        pack=pack,
    )


def _flushes(file: Path, seconds: float) -> Sequence[float]:
    """Append pages as the store's log does, each flushed; return how long each took, sorted."""
    page = os.urandom(FLUSH_BYTES)
    found: list[float] = []
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        end = time.perf_counter() + seconds
        while not found or time.perf_counter() < end:
            begun = time.perf_counter()
            os.write(descriptor, page)
            os.fdatasync(descriptor)
            found.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
    return sorted(found)


async def _store(folder: Path, pack: int, seconds: float) -> Stored:
    """Have a store of its own accept deliveries, each after the ack of the one before."""
    clock, loop = SystemClock(trusted=True), asyncio.get_running_loop()
    async with EventStore(folder, "measurement", StoreSettings(), IdentitySettings(), clock) as store:
        await store.barrier()
        number, begun, written = 0, time.perf_counter(), process_bytes()
        while not number or time.perf_counter() < begun + seconds:
            done: asyncio.Future[Outcome] = loop.create_future()
            events = [Event(_DEVICE, id=number + one, data=_reading(number + one)) for one in range(pack)]
            number += pack
            candidates = [
                identify(event, "coap", clock.wall_ms(), ClockTrust.TRUSTED, IdentitySettings()) for event in events
            ]
            store.submit(Submission(tuple(candidates), (), None, done.set_result))
            outcome = await done
            if outcome.refusal:
                raise CommandError(f"{folder}: {outcome.refusal}")
        took = time.perf_counter() - begun
    return Stored(number / took, (process_bytes() - written) / number)


def _reading(number: int) -> dict[str, float]:
    return {"temperature": 20 + number % 700 / 100, "humidity": 40 + number % 311 / 10, "battery": 3.0}


def _machine() -> str:
    model = text_of(_MODEL).strip("\0\n ")
    names = (
        line.partition(":")[2].strip() for line in text_of(_PROCESSORS).splitlines() if line.startswith("model name")
    )
    return f"{model or next(names, 'unknown')}, {platform.machine()}"


def _disk(folder: Path) -> tuple[str, int | None]:
    """Return file system and disk for people, and the disk's size."""
    mount = mount_of(existing(folder), MOUNTS.read_text())
    if mount is None:
        return "unknown disk", None
    device = disk_of(mount.device)
    if device is None:
        return f"{mount.kind} on {mount.source}", None
    name = text_of(device / "device" / "model").strip() or text_of(device / "device" / "name").strip()
    capacity = capacity_of(device)
    words = [mount.kind, "on", device.name, name, "" if capacity is None else size(capacity)]
    return " ".join(word for word in words if word), capacity
