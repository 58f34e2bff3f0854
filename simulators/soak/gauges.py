"""Memory, file descriptors and disk of the services of a run, sampled at intervals."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from simulators.run.services import Services
from simulators.services import session

SAMPLE_SECONDS = 15.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
BLOCK_BYTES = 512
SHARE = 0.1
"""The share of the samples from which start, middle and end are computed."""
POINTS_MAX = 200

Sample = Mapping[str, int]


class Gauges:
    """The samples of a run; each maps names such as `agent memory` to a value in bytes, or a count of descriptors."""

    def __init__(self, services: Services) -> None:
        self.samples: list[Sample] = []
        self._services = services
        self._begin = time.monotonic()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self.samples.append(await asyncio.to_thread(lambda: dict(self._values())))
            await asyncio.sleep(SAMPLE_SECONDS)

    def _values(self) -> Iterator[tuple[str, int]]:
        services = self._services
        yield "seconds", round(time.monotonic() - self._begin)
        for name, service in services.by_name.items():
            if service.process.alive:
                memory, files = _usage(session.members(service.process.pid))
                if files:
                    yield f"{name} memory", memory
                    yield f"{name} files", files
        for name, gateway in services.agents.items():
            yield f"{name} disk", _size(gateway.state)
        yield "checkpoint disk", _size(services.job.checkpoint)
        yield "table disk", _size(services.job.table)
        yield "kafka disk", _size(services.broker.data_folder)


def summary(samples: Sequence[Sample]) -> dict[str, tuple[int, int, int]]:
    """Return the medians of each value at the start, in the middle, and at the end; of values with one at least."""
    names = sorted({name for sample in samples for name in sample} - {"seconds"})
    found = {}
    for name in names:
        values = [sample[name] for sample in samples if name in sample]
        size = max(1, round(SHARE * len(values)))
        middle = (len(values) - size) // 2
        parts = (values[:size], values[middle : middle + size], values[-size:])
        start, halfway, end = (round(median(part)) for part in parts)
        found[name] = (start, halfway, end)
    return found


def thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return POINTS_MAX samples at most, evenly chosen."""
    every = -(-len(samples) // POINTS_MAX) or 1
    return samples[::every]


def _usage(pids: Sequence[int]) -> tuple[int, int]:
    """Return the resident memory in bytes and the number of file descriptors of processes."""
    memory = files = 0
    for pid in pids:
        try:
            memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
            files += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
    return memory, files


def _size(folder: Path) -> int:
    """Return the space on disk in bytes of a folder's files, some of which may vanish meanwhile."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(path) / name).lstat().st_blocks * BLOCK_BYTES
            except FileNotFoundError:
                continue
    return total
