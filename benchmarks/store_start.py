"""One start of a store in a process of its own: seconds to the first ack, and memory growth."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.store_fill import events
from benchmarks.store_writes import Load, opened


@dataclass(frozen=True, slots=True)
class Start:
    """The cost of a start."""

    seconds: float
    memory_bytes: int
    """Resident, in addition to that before the opening."""
    index_bytes: int
    """As the index counts its own."""


def measure(folder: Path, seed: int) -> Start:
    """Measure a start in a fresh process."""
    command = (sys.executable, "-m", "benchmarks.store_start", str(folder), str(seed))
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return Start(**json.loads(result.stdout))


async def _start(folder: Path, seed: int) -> dict[str, float]:
    source = events(seed)
    before = _resident()
    start = time.perf_counter()
    async with opened(folder, 100) as store:
        load = Load(store, source, 1)
        load.run(load.prepared(1))
        return {
            "seconds": time.perf_counter() - start,
            "memory_bytes": _resident() - before,
            "index_bytes": store._memory.fingerprints.held_bytes(),
        }


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_start(Path(sys.argv[1]), int(sys.argv[2])))))
