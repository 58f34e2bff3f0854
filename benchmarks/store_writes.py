"""The store's written bytes, throughput and ack latency for a given commit size."""

import asyncio
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.clock import SystemClock
from agent.config.settings import IdentitySettings, StoreSettings
from agent.store.event_store import EventStore
from agent.store.port import Outcome, Submission
from benchmarks.report import Figure, middle, p99
from benchmarks.store_fill import GATEWAY, events, submission
from benchmarks.usage import resident_bytes, written_bytes
from contract.event import Event

BYTES_MAX = 64 << 30
RAW_EVENT_BYTES = 212
"""Bytes that the store keeps of one event, before compression."""
PER_SECOND_MIN, RAW_SHARE = 40_000, 0.4
IN_FLIGHT = 2
"""Deliveries in flight: while one is flushed, the next is decided."""


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes per event by the counters of the process and of the disk; the disk counts all processes."""

    process: float
    disk: float


@asynccontextmanager
async def opened(folder: Path, commit_events: int) -> AsyncIterator[EventStore]:
    """Open a store for service with a maximum number of events per commit."""
    settings = StoreSettings(max_bytes=BYTES_MAX, commit_events_max=commit_events)
    async with EventStore(folder, GATEWAY, settings, IdentitySettings(), SystemClock(trusted=True)) as store:
        yield store


class Load:
    """Deliveries of a fixed size, one commit each."""

    def __init__(self, store: EventStore, source: Iterator[Event], size: int) -> None:
        self._store = store
        self._source = source
        self._size = size
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        # The outcomes are handled on the writer's thread: the event loop is not measured.
        store._committer._announce = self._take  # type: ignore[assignment]

    def _take(self, answers: list[tuple[Submission, Outcome]]) -> None:
        for given, outcome in answers:
            given.done(outcome)

    def prepared(self, deliveries: int) -> list[Submission]:
        """Decode and fingerprint in advance, so that only the store is measured."""
        return [submission(self._source, self._size, self._outcomes.put) for _ in range(deliveries)]

    def run(self, work: list[Submission], in_flight: int = IN_FLIGHT) -> float:
        """Submit all with a number in flight; return the seconds until all are durable."""
        start = time.perf_counter()
        for number, one in enumerate(work):
            self._store.submit(one)
            if number >= in_flight - 1:
                self._durable()
        for _ in range(min(in_flight - 1, len(work))):
            self._durable()
        return time.perf_counter() - start

    def latencies(self, work: list[Submission]) -> list[float]:
        """Submit one by one; return the seconds until each was durable."""
        found = []
        for one in work:
            start = time.perf_counter()
            self._store.submit(one)
            self._durable()
            found.append(time.perf_counter() - start)
        return found

    def _durable(self) -> None:
        outcome = self._outcomes.get(timeout=60)
        if outcome.refusal or not outcome.accepted:
            raise RuntimeError(f"not stored: {outcome}")


async def bytes_per_event(folder: Path, source: Iterator[Event], size: int, deliveries: int) -> Written:
    """Measure the written bytes per event, with a checkpoint of the log before and after."""
    async with opened(folder, size) as store:
        load = Load(store, source, size)
        work = load.prepared(deliveries)
        load.run(load.prepared(2))
        store.trouble()
        before, disk_before = written_bytes(), disk_bytes(folder)
        load.run(work)
        os.sync()
        return Written(
            (written_bytes() - before) / (deliveries * size), (disk_bytes(folder) - disk_before) / (deliveries * size)
        )


async def speed(folder: Path, source: Iterator[Event], size: int, deliveries: int, rounds: int) -> list[Figure]:
    """Compare with the limit, in turns: the same bytes appended to a file, with fdatasync after each commit."""
    durable, raw, cpu_us = list[float](), list[float](), list[float]()
    async with opened(folder / "store", size) as store:
        load = Load(store, source, size)
        load.run(load.prepared(20))
        for _ in range(rounds):
            work = load.prepared(deliveries)
            before = time.process_time()
            durable.append(deliveries * size / load.run(work))
            cpu_us.append((time.process_time() - before) / (deliveries * size) * 1e6)
            raw.append(deliveries * size / append(folder / "raw", size * RAW_EVENT_BYTES, deliveries))
    shares = [ours / theirs for ours, theirs in zip(durable, raw, strict=True)]
    return [
        middle(f"durable events/s in commits of {size}", durable, "1/s", PER_SECOND_MIN, at_least=True),
        middle("CPU per event of it", cpu_us, "µs"),
        middle("raw append + fdatasync of the same bytes", raw, "1/s"),
        middle("the store's share of raw append", shares, "times", RAW_SHARE, at_least=True),
    ]


def append(file: Path, size: int, count: int) -> float:
    """Append pieces, each with fdatasync; return the seconds."""
    piece = os.urandom(size)
    with file.open("ab", buffering=0) as raw:
        start = time.perf_counter()
        for _ in range(count):
            raw.write(piece)
            os.fdatasync(raw.fileno())
        return time.perf_counter() - start


async def ack_p99(empty: Path, full: Path, source: Iterator[Event], rounds: int, each: int) -> tuple[float, float]:
    """Return the 99th percentile of the time to an ack in two stores, measured alternately, in seconds."""
    found: tuple[list[float], list[float]] = ([], [])
    async with opened(empty, 100) as first, opened(full, 100) as second:
        loads = (Load(first, source, 10), Load(second, source, 10))
        for load in loads:
            load.run(load.prepared(20))
        for _ in range(rounds):
            for load, kept in zip(loads, found, strict=True):
                kept.extend(load.latencies(load.prepared(each)))
    return p99(found[0]), p99(found[1])


def disk_bytes(folder: Path) -> int:
    """Return the bytes written since boot by the disk of a folder; 0 where the kernel does not report it."""
    device = folder.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except OSError:
        return 0
    return int(fields[6]) * 512


@dataclass(frozen=True, slots=True)
class Start:
    """The cost of a start."""

    seconds: float
    memory_bytes: int
    """Resident, in addition to that before the opening."""
    index_bytes: int
    """As the index counts its own."""


def measure_start(folder: Path, seed: int) -> Start:
    """Measure a start in a fresh process."""
    command = (sys.executable, "-m", "benchmarks.store_writes", str(folder), str(seed))
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return Start(**json.loads(result.stdout))


async def _start(folder: Path, seed: int) -> dict[str, float]:
    source = events(seed)
    before = resident_bytes()
    start = time.perf_counter()
    async with opened(folder, 100) as store:
        load = Load(store, source, 1)
        load.run(load.prepared(1))
        return {
            "seconds": time.perf_counter() - start,
            "memory_bytes": resident_bytes() - before,
            "index_bytes": store._memory.fingerprints.in_memory_bytes(),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_start(Path(sys.argv[1]), int(sys.argv[2])))))
