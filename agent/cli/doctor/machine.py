"""Checks the machine: clock, releases, file system, space, memory, threads, ports, certificates, wear of its card."""

import errno
import os
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.certificates.expiry import certificates
from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.clock import Clock
from agent.config import ways
from agent.config.lanes import DEFAULT_LANE, LANE_SHARE
from agent.config.load import parts_of
from agent.config.settings import GatewaySettings, IdentitySettings, Settings, StoreSettings
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME
from agent.store.read.remembered import read_remembered
from agent.store.schema import database
from agent.store.wear import BytesWritten, read_written
from agent.terminal import count, duration, size
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
    now_ms = clock.wall_ms()
    # kafka.hours are local hours.
    now = f"{rfc3339(now_ms)} ({time.strftime('%H:%M %Z here', time.localtime(now_ms / 1000))})"
    if settings.clock == "trusted":
        yield fine("clock", f"{now}; trusted, as configured by gateway.clock")
    elif clock.trust() is ClockTrust.TRUSTED:
        yield fine("clock", f"{now}; synchronised according to the kernel")
    else:
        text = f"{now}; not synchronised: events are marked untrusted, and each costs a look-up in the cloud"
        hint = 'timedatectl set-ntp true, timedatectl timesync-status; or gateway.clock = "trusted" with a good RTC'
        yield warning("clock", text, hint)


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
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = min(installed, limit_in(SERVICE_MEMORY) or installed) if available_bytes is None else available_bytes
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


def limit_in(file: Path) -> int | None:
    """Return a limit of the service; None without one, while it does not run, or without unified cgroups."""
    limit = text_of(file).strip()
    return int(limit) if limit.isdigit() else None


def existing(folder: Path) -> Path:
    """Return the folder, or the first existing one above it."""
    folder = folder.resolve()
    return next(one for one in (folder, *folder.parents) if one.exists())


SERVICE_TASKS: Final = Path("/sys/fs/cgroup/system.slice/oncegate.service/pids.max")
CLIENTS_MAX: Final = 5
"""The producer, one each for the topic and the records of a transaction, and two for the receipts (decision 53)."""
CLIENT_TASKS: Final = 5
"""Threads of one client besides its brokers': main, callbacks, bootstrap and coordinators."""
LANE_TASKS: Final = 4
"""Threads of a lane beside the default one and its clients: writer, forwarder, receipts, an abandoned call."""
AGENT_TASKS: Final = 24
"""All other threads: loop, writer, workers, abandoned calls into a client."""


def tasks_max(brokers: int, lanes: int = 0) -> int:
    """Return the maximum number of the agent's threads with this number of brokers, and of lanes beside the default."""
    clients = CLIENTS_MAX * (brokers + CLIENT_TASKS)
    return (1 + lanes) * clients + lanes * LANE_TASKS + AGENT_TASKS


def check_threads(brokers: int, lanes: int = 0, limit_file: Path = SERVICE_TASKS) -> Iterator[Finding]:
    """Check the service's limit of threads; yield nothing where it has none."""
    limit = limit_in(limit_file)
    if limit is None:
        return
    needed = tasks_max(brokers, lanes)
    of_lanes = f" and {1 + lanes} lanes" if lanes else ""
    text = f"{brokers} brokers{of_lanes}: up to {needed} threads of TasksMax={limit}"
    if needed > limit:
        hint = f"raise it: systemctl edit oncegate, [Service], TasksMax={2 * needed}"
        yield wrong("threads", f"{text}: without threads the Kafka client aborts the agent", hint)
    else:
        yield fine("threads", text)


PROC = Path("/proc")
_LISTENING = "0A"
"""TCP's state in /proc/net/tcp."""
_SYSTEMD = "systemd (process 1)"


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Check that the ports are used by the agent, or free."""
    runs = database.in_use(settings.gateway.state_dir / FILE_NAME)
    for name, way in ways.enabled(settings).items():
        if way.listens is not None:
            section = name if name in ways.OWN else f"{ways.SECTION}{name}"
            user = existing(settings.gateway.state_dir).stat().st_uid
            yield _check(f"{section}.bind", parts_of(settings)[section].bind, way.listens, user, runs=runs)


def _check(name: str, bind: str, kind: socket.SocketKind, user: int, *, runs: bool) -> Finding:
    host, _, port = bind.rpartition(":")
    protocol = "UDP" if kind is socket.SOCK_DGRAM else "TCP"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return wrong("ports", f"{name}: {bind!r} is not [address]:port", "see docs/configuration.md")
    family, _, _, _, address = found[0]
    try:
        _bind(family, kind, address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            hint = f"set {name} to an address of this machine"
            return wrong("ports", f"{name}: {protocol} {bind}: {error.strerror}", hint)
        if runs:
            return fine("ports", f"{name}: {protocol} {bind} is in use, and the agent runs")
        owner, opened_by = _owner(int(port), kind)
        if owner == _SYSTEMD and opened_by == user:
            return fine("ports", f"{name}: {protocol} {bind} is kept by systemd, for the agent's next start")
        if owner == _SYSTEMD:
            hint = "only that of the agent may have it: systemctl list-sockets"
            return warning("ports", f"{name}: {protocol} {bind} is held by systemd, for a socket unit", hint)
        return wrong("ports", f"{name}: {protocol} {bind} is in use by {owner}", f"stop it, or change {name}")
    if runs and int(port):
        return wrong("ports", f"{name}: the agent runs, but does not listen on {protocol} {bind}", "restart the agent")
    return fine("ports", f"{name}: {protocol} {bind} is free")


def _bind(family: int, kind: socket.SocketKind, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the agent does
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(address)


def _owner(port: int, kind: socket.SocketKind) -> tuple[str, int | None]:
    """Return the name of the process that uses a port, where it is visible, and the user that has opened the socket."""
    protocol = "udp" if kind is socket.SOCK_DGRAM else "tcp"
    users: dict[str, int] = {}
    for table in (f"{protocol}", f"{protocol}6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if int(fields[1].rpartition(":")[2], 16) == port and (protocol == "udp" or fields[3] == _LISTENING):
                users[f"socket:[{fields[9]}]"] = int(fields[7])
    for process in PROC.glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if (user := users.get(str(descriptor.readlink()))) is not None:
                    return f"{(process / 'comm').read_text().strip()} (process {process.name})", user
        except OSError:
            continue  # it has ended, or is not accessible
    return "another process", None


DAYS_MIN: Final = 30
_DAY_MS: Final = 86_400_000
_RENEW: Final = "replace the file, then: systemctl restart oncegate"
_RENEW_OPEN: Final = {
    "kafka": "replace the file: the agent begins a new session with it",
    "http": "replace the file: the agent uses it for new connections",
}
"""For connections whose files are watched."""


def check_certificates(settings: Settings, now: int) -> Iterator[Finding]:
    """Check each certificate of the configuration; `now` is in milliseconds since 1970 UTC."""
    for certificate in certificates(settings):
        what = f"{certificate.connection}, {certificate.role}: {certificate.source}"
        if certificate.expires is None:
            yield warning("certificate", f"{what}: {certificate.error}", "check the path, and that the file is in PEM")
            continue
        left_ms = int(certificate.expires.timestamp() * 1000) - now
        day = certificate.expires.strftime("%Y-%m-%d")
        hint = _RENEW_OPEN.get(certificate.connection, _RENEW)
        text = f"{what}: {count(left_ms // _DAY_MS, 'day')} until it expires, on {day}"
        if left_ms <= 0:
            yield wrong("certificate", f"{what}: expired on {day}", hint)
        elif left_ms < DAYS_MIN * _DAY_MS:
            yield warning("certificate", text, hint)
        else:
            yield fine("certificate", text)


SYS_BLOCK = Path("/sys/dev/block")
SECTOR_BYTES = 512
FULL_WRITES = 250
"""How often a card can be filled: 1,000 writes of each cell, with a write amplification of four
(assumed, as in docs/benchmarks.md)."""
YEARS_MIN = 5.0
HOURS_MIN = 1.0
"""Running time below which the rate is not representative."""
_HOURS_PER_YEAR = 8_766.0
_TOO_EARLY = "not enough data yet to estimate the disk's life"


def check_wear(folder: Path) -> Iterator[Finding]:
    """Check how much the agent has written, and the card's own health report."""
    path = folder / FILE_NAME
    mount = mount_of(existing(folder), MOUNTS.read_text())
    device = None if mount is None else disk_of(mount.device)
    if path.exists():
        yield years_left(read_written(path), None if device is None else capacity_of(device))
    if device is not None:
        yield from card_health(device)


def years_left(written: BytesWritten, capacity: int | None) -> Finding:
    """Check the rate at which the agent writes."""
    if not written.bytes:
        return fine("wear", _TOO_EARLY)
    hours = written.service_ms / 3_600_000
    so_far = f"the agent has written {size(written.bytes)} in {duration(hours * 3_600)} of running"
    if capacity is None or hours < HOURS_MIN:
        return fine("wear", f"{so_far}; {_TOO_EARLY}")
    years = capacity * FULL_WRITES / (written.bytes / hours) / _HOURS_PER_YEAR
    text = f"{so_far}: {years:,.0f} years for {size(capacity)}, if it can be filled {FULL_WRITES} times"
    if years < YEARS_MIN:
        return warning("wear", text, "raise store.commit_delay_ms_max, send packs, or use an SSD")
    return fine("wear", text)


def card_health(device: Path) -> Iterator[Finding]:
    """Check an eMMC's health report (JEDEC eMMC 5.0: tenths of its life, and the reserve)."""
    life = text_of(device / "device" / "life_time").split()
    if not life:
        return
    tenths = max(int(part, 16) for part in life)
    text = f"{device.name} reports that {min(tenths, 10) * 10} % of its life is used"
    reserve = text_of(device / "device" / "pre_eol_info").strip()
    if tenths >= 9 or reserve in ("0x02", "0x03"):
        yield warning("card", text, "replace the card: docs/operations.md, Replace a gateway")
    else:
        yield fine("card", text)


def disk_of(numbers: str) -> Path | None:
    """Return the disk of a partition, None where it is unknown."""
    device = SYS_BLOCK / numbers
    if not device.exists():
        return None
    device = device.resolve()
    return device.parent if (device / "partition").exists() else device


def capacity_of(device: Path) -> int | None:
    """Return a disk's size in bytes, None where it is unknown."""
    sectors = text_of(device / "size").strip()
    return int(sectors) * SECTOR_BYTES if sectors else None


def text_of(file: Path) -> str:
    """Return the text of a file of the kernel; empty where it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
