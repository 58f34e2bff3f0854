"""Checks the machine: clock, Python's and SQLite's releases, file system, space, memory."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.clock import Clock
from agent.config.lanes import DEFAULT_LANE, LANE_SHARE
from agent.config.settings import GatewaySettings, IdentitySettings, StoreSettings
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME
from agent.store.read.remembered import read_remembered
from agent.store.schema import database
from agent.terminal import duration, size
from contract.record import ClockTrust
from contract.timestamp import rfc3339

MOUNTS = Path("/proc/self/mountinfo")
SERVICE_MEMORY = Path("/sys/fs/cgroup/system.slice/oncegate.service/memory.max")
AGENT_BYTES = 100 << 20
"""Memory of the agent under load, without fingerprints and the page cache of its files."""
STORE_BYTES_MIN = 1 << 20
"""A smaller store is full after a few hundred events."""
PYTHONS = ((3, 11), (3, 13))
"""The oldest and the newest release of Python with which the agent's tests pass."""
_ONE_WRITER_UNTIL = (3, 51, 3)
"""Older releases may damage a log that two connections reset at once (https://www.sqlite.org/wal.html#walresetbug)."""
_VOLATILE = {"tmpfs", "ramfs"}
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"}
_WITHOUT_JOURNAL = {"vfat", "exfat", "ext2", "msdos"}
_UNSAFE_OPTIONS = {
    "data=writeback": "after a power cut files may hold what was never written to them",
    "nobarrier": "a flush does not reach the disk",
    "barrier=0": "a flush does not reach the disk",
    "ro": "nothing can be written",
}


def check_clock(clock: Clock, settings: GatewaySettings) -> Iterator[Finding]:
    """Check whether the clock is trusted."""
    now = rfc3339(clock.wall_ms())
    if settings.clock == "trusted":
        yield fine("clock", f"{now}; trusted, as configured by gateway.clock")
    elif clock.trust() is ClockTrust.TRUSTED:
        yield fine("clock", f"{now}; synchronised according to the kernel")
    else:
        yield warning(
            "clock",
            f"{now}; not synchronised: events are marked untrusted, and each costs a look-up in the cloud",
            'timedatectl set-ntp true, timedatectl timesync-status; or gateway.clock = "trusted" with a good RTC',
        )


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    """Report the release of Python; warn where the agent's tests have not been run on it."""
    text = ".".join(map(str, version))
    oldest, newest = (".".join(map(str, each)) for each in PYTHONS)
    if PYTHONS[0] <= version[:2] <= PYTHONS[1]:
        yield fine("python", text)
    else:
        yield warning("python", f"{text}; the agent is tested with {oldest} to {newest}", f"use Python {newest}")


def check_sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Iterator[Finding]:
    """Report the release of SQLite."""
    text = ".".join(map(str, version))
    if version < _ONE_WRITER_UNTIL:
        text += "; no other program may write to the store while the agent runs (until 3.51.3 that could damage it)"
    yield fine("sqlite", text)


@dataclass(frozen=True, slots=True)
class Mount:
    """The relevant fields of a line of /proc/self/mountinfo (proc(5))."""

    point: str
    kind: str
    source: str
    options: frozenset[str]
    """Of the mount and of the file system."""
    device: str


def mount_of(folder: Path, mounts: str) -> Mount | None:
    """Return the mount that holds a folder; the last of several on one point hides the others."""
    found: Mount | None = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, source, *options) = left.split(), right.split()
        point = fields[4].replace("\\040", " ")
        if folder.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            names = frozenset((*fields[5].split(","), *(options[0].split(",") if options else ())))
            found = Mount(point, kind, source, names, fields[2])
    return found


def check_mount(folder: Path, mounts: str | None = None) -> Iterator[Finding]:
    """Check that the file system honours a flush."""
    existing_folder = existing(folder)
    mount = mount_of(existing_folder, MOUNTS.read_text() if mounts is None else mounts)
    if mount is None:
        yield warning("mount", f"{folder}: its file system is unknown")
        return
    text = f"{folder} on {mount.point} ({mount.kind}, {mount.source})"
    unsafe = [f"{option}: {effect}" for option, effect in _UNSAFE_OPTIONS.items() if option in mount.options]
    if mount.kind in _VOLATILE:
        yield wrong("mount", f"{text}: lost in a power cut", "set gateway.state_dir to a folder on a disk")
    elif mount.kind in _REMOTE:
        yield wrong("mount", f"{text}: SQLite's log needs a local disk", "set gateway.state_dir to a local folder")
    elif unsafe:
        yield wrong("mount", f"{text}: {'; '.join(unsafe)}", "mount it without that option")
    elif mount.kind in _WITHOUT_JOURNAL:
        yield warning("mount", f"{text}: no journal, so a power cut may damage the file system", "use ext4")
    else:
        yield fine("mount", text)


def check_store_bound(settings: StoreSettings, lanes: int = 0) -> Iterator[Finding]:
    """Warn about a store, or the part of a lane, that is full after a few events."""
    part = settings.max_bytes // LANE_SHARE if lanes else settings.max_bytes
    if part < STORE_BYTES_MIN:
        text = f"the store{' of each lane' if lanes else ''} may grow to {size(part)} and is full after a few events"
        yield warning("space", text, "raise store.max_bytes")


def check_space(folder: Path, settings: StoreSettings) -> Iterator[Finding]:
    """Check that the store can grow to its bound."""
    state = os.statvfs(existing(folder))
    free = state.f_bavail * state.f_frsize
    used = sum(database.disk_bytes(store / FILE_NAME) for store in store_folders(folder).values())
    missing = max(0, settings.max_bytes - used)
    text = f"{size(free)} free; the store has {size(used)} and may grow to {size(settings.max_bytes)}"
    if free < missing:
        yield wrong("space", text, "lower store.max_bytes, or free space: a full disk refuses events before its bound")
    elif free < missing * 1.2:
        yield warning("space", f"{text}: it would leave little for others", "lower store.max_bytes, or free space")
    else:
        yield fine("space", text)


def check_memory(settings: IdentitySettings, lanes: int = 0, available_bytes: int | None = None) -> Iterator[Finding]:
    """Check that the fingerprints of all lanes fit into the memory of the machine, or of the service."""
    available = _memory_bytes() if available_bytes is None else available_bytes
    needed = settings.memory_bytes * (LANE_SHARE + lanes) // LANE_SHARE
    text = f"{size(available)} for the agent; fingerprints may take {size(needed)}"
    if needed + AGENT_BYTES > available:
        hint = "lower identity.memory, or raise MemoryMax: systemctl edit oncegate"
        yield wrong("memory", f"{text}, the rest about {size(AGENT_BYTES)}", hint)
    else:
        yield fine("memory", text)


def check_fingerprints(
    folder: Path, store: StoreSettings, identity: IdentitySettings, lanes: int = 0
) -> Iterator[Finding]:
    """Check for how long the fingerprints of each lane are remembered at its present rate."""
    folders = store_folders(folder)
    part = store.max_bytes // LANE_SHARE
    rest = store.max_bytes - part * max(lanes, len(folders) - 1)
    for lane, state in folders.items():
        is_default = lane == DEFAULT_LANE
        memory_bytes = identity.memory_bytes // (1 if is_default else LANE_SHARE)
        found = read_remembered(state / FILE_NAME, rest if is_default else part, memory_bytes)
        if found is None:
            continue
        rate = f"{'' if is_default else f'lane {lane}: '}at the last day's {found.events_per_second:,.3g} events/s"
        disk, memory = duration(found.seconds_on_disk), duration(found.seconds_in_memory)
        text = f"{rate} remembered for {disk} on disk, {memory} with filters in memory"
        if found.seconds_on_disk < identity.retention_seconds:
            hint = f"identity.retention is {duration(identity.retention_seconds)}: raise store.max_bytes, or lower it"
            yield warning("fingerprints", text, hint)
        else:
            yield fine("fingerprints", text)


def _memory_bytes() -> int:
    """Return the service's memory limit where it has one, else the machine's memory, in bytes."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        bound = SERVICE_MEMORY.read_text().strip()
    except OSError:  # the service does not run, or the machine has no unified cgroups
        return installed
    return min(installed, int(bound)) if bound.isdigit() else installed


def existing(folder: Path) -> Path:
    """Return the folder, or the first existing one above it."""
    folder = folder.resolve()
    while not folder.exists():
        folder = folder.parent
    return folder
