"""Checks the wear of the card: how much was written, and how long it lasts at this rate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent.cli.doctor.finding import Finding, fine, warning
from agent.cli.doctor.machine import MOUNTS, existing, mount_of
from agent.store.layout import FILE_NAME
from agent.store.wear import BytesWritten, read_written
from agent.terminal import duration, size

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
    life = _read(device / "device" / "life_time").split()
    if not life:
        return
    tenths = max(int(part, 16) for part in life)
    text = f"{device.name} reports that {min(tenths, 10) * 10} % of its life is used"
    reserve = _read(device / "device" / "pre_eol_info").strip()
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
    sectors = _read(device / "size").strip()
    return int(sectors) * SECTOR_BYTES if sectors else None


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
