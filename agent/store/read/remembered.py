"""For how long a store remembers fingerprints at the rate of its last day."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.store.fingerprints import fingerprint_rows
from agent.store.fingerprints.filters import BITS
from agent.store.fingerprints.index import IndexBounds
from agent.store.fingerprints.segments import SEALED_BYTES, SHARE, load_segments
from agent.store.schema import database, disk_space, tables
from agent.store.schema.database import Reads

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_MS_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Remembered:
    """For how long fingerprints are remembered, in running time."""

    events_per_second: float
    seconds_on_disk: float
    """Until the oldest are forgotten early."""
    seconds_in_memory: float
    """Until the oldest are looked up without a filter."""


def read_remembered(path: Path, store_bytes: int, memory_bytes: int) -> Remembered | None:
    """Return how long a bounded store remembers, beside the running service or without it.

    Return None where there is no store, or none that has run for an hour.
    """
    if not path.exists():
        return None
    with closing(database.open_for_reading(path)) as connection, database.snapshot(connection):
        rate = _events_per_second(connection)
    if not rate:
        return None
    filters = IndexBounds(memory_bytes).filter_bytes * 16 / BITS  # folded
    on_disk = disk_space.bound(store_bytes) * SHARE / SEALED_BYTES
    return Remembered(rate, on_disk / rate, filters / rate)


def _events_per_second(connection: Reads) -> float:
    """Return the rate of the last day of running (at most all of it), 0 within the first hour."""
    end = tables.last_position(connection)
    times = [(start.service_ms, first) for first, start in tables.load_epochs(connection)]
    times += [(segment.service_ms, segment.last) for segment, _ in load_segments(connection)]
    latest_ms = max([*times, *fingerprint_rows.latest_by(connection, _MS_MAX)], default=(0, 0))[0]
    times += fingerprint_rows.latest_by(connection, latest_ms - _DAY_MS)
    before = [time for time in times if time[0] <= latest_ms - _DAY_MS] or [min(times, default=(0, 0))]
    since_ms, position = max(before)
    return (end - position) * 1000 / (latest_ms - since_ms) if latest_ms - since_ms >= _HOUR_MS else 0.0
