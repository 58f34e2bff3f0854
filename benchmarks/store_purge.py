"""The acks while a full store of single events is purged on a card's disk, and the start after a kill within it."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from agent.store.layout import FILE_NAME
from agent.store.schema import database, disk_space, tables
from benchmarks.agent import programs
from benchmarks.report import Figure, against, p99
from benchmarks.store_drain import Sensors, agent_on
from benchmarks.store_fill import fill

CARD_BYTES_PER_SECOND = 15_000_000
PER_SECOND = 50
ACK_P99_MS_MAX = 250.0
STEP_SECONDS = 0.25
SECONDS_MAX = 1_800
_STORE = 'max_bytes = "{}B"\nkeep_processed = "1s"'
_NOWHERE = 'bootstrap_servers = "127.0.0.1:1"'


def purge(folder: Path, events: int) -> list[Figure]:
    """Fill a store by single events, all of which are in the table; purge one half, kill, and purge the other."""
    python = programs.compiled()
    state = folder / "state"
    fill(state, events, events, commit_events=1)
    with closing(database.open_for_service(state / FILE_NAME)) as connection:
        tables.replace_processed(connection, [(1, events)])
    size = (state / FILE_NAME).stat().st_size
    store = _STORE.format(size + min(disk_space.BOUND_RESERVE_BYTES_MAX, size // 9))  # at its bound
    card = {"LD_PRELOAD": str(programs.slow_sync()), "SLOW_BYTES_PER_SECOND": str(CARD_BYTES_PER_SECOND)}
    halves: list[tuple[list[float], int]] = []

    def half(up_to: int) -> float:
        begun = time.perf_counter()
        with agent_on(folder, _NOWHERE, python, store, card) as (agent, port):
            ready = time.perf_counter() - begun
            halves.append(_watch(state / FILE_NAME, port, up_to))
            agent.kill()
        return ready

    half(events // 2)
    begun = time.perf_counter()
    reopened = half(events)
    passed = time.perf_counter() - begun - reopened
    acks = [one for seconds, _ in halves for one in seconds]
    log_bytes_max = max(log for _, log in halves)
    details: dict[str, Any] = {"acks": len(acks), "ack_seconds_max": max(acks), "log_bytes_max": log_bytes_max}
    of = f"purge of {events:,} single events at {CARD_BYTES_PER_SECOND / 1e6:g} MB/s"
    return [
        against(f"{of}: ack p99", p99(acks) * 1000, "ms", ACK_P99_MS_MAX, **details),
        against(f"{of}: the second half of it", passed, "s"),
        against(f"{of}: start after a kill within it", reopened, "s"),
    ]


def _watch(store: Path, port: int, up_to: int) -> tuple[list[float], int]:
    """Send events until those up to a position are purged; return the seconds of each ack, and the log's most bytes."""
    log_bytes, deadline = 0, time.perf_counter() + SECONDS_MAX
    with closing(Sensors(port, PER_SECOND)) as sensors, closing(database.open_for_reading(store)) as reader:
        while _first(reader) <= up_to and time.perf_counter() < deadline:
            sensors.work(STEP_SECONDS)
            log_bytes = max(log_bytes, disk_space.log_bytes(store))
        return sensors.seconds, log_bytes


def _first(reader: sqlite3.Connection) -> int:
    """Return the first position that the store has."""
    [[first]] = reader.execute("SELECT coalesce(min(first_position), 1 << 62) FROM events").fetchall()
    return int(first)
