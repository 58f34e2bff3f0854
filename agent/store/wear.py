"""How much the agent has written to its disk in all the store's life, since cards wear out by it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.store.facts import BYTES_WRITTEN
from agent.store.schema import database, tables

NOTE_MS = 3_600_000
"""How much running time lies between two notes, each of which is carried by a transaction that comes anyway."""
_IO = Path("/proc/self/io")
_COUNTER = "write_bytes: "


@dataclass(frozen=True, slots=True)
class Written:
    """What was written, and the running time in which it was."""

    bytes: int
    service_ms: int


class Wear:
    """The count of what is written; a kill forgets up to an hour of it."""

    def __init__(self, before: Written) -> None:
        self._before = before
        self._start = process_bytes()
        self._noted_ms = before.service_ms

    @property
    def bytes(self) -> int:
        """What was written in all the store's life."""
        return self._before.bytes + process_bytes() - self._start

    def note(self, connection: sqlite3.Connection, service_ms: int, *, at_once: bool = False) -> None:
        """Write the count within a transaction, where it is time to."""
        if at_once or service_ms - self._noted_ms >= NOTE_MS:
            tables.write_fact(connection, BYTES_WRITTEN, f"{self.bytes} {service_ms}")
            self._noted_ms = service_ms


def process_bytes() -> int:
    """Return what this process has had written to disks (proc(5), write_bytes); 0 where the kernel does not count."""
    try:
        lines = _IO.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.removeprefix(_COUNTER)) for line in lines if line.startswith(_COUNTER)), 0)


def load(connection: sqlite3.Connection) -> Written:
    """Read the latest note."""
    noted = (tables.read_fact(connection, BYTES_WRITTEN) or "0 0").split()
    return Written(int(noted[0]), int(noted[1]))


def read_written(path: Path) -> Written:
    """Read the latest note beside the service or without it."""
    with closing(database.open_for_reading(path)) as connection:
        return load(connection)
