"""Counts the bytes that the agent has written to its disk since the store was created, since they wear a card out."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent.store.facts import BYTES_WRITTEN
from agent.store.schema import database, tables

NOTE_MS = 3_600_000
"""The service time between two writes of the count, in transactions that run anyway."""
_IO = Path("/proc/self/io")
_COUNTER = "write_bytes: "


@dataclass(frozen=True, slots=True)
class BytesWritten:
    """How many bytes were written, up to a service time."""

    bytes: int
    service_ms: int


class Wear:
    """The count of written bytes; a kill loses up to an hour of it."""

    def __init__(self, before: BytesWritten) -> None:
        self._before = before
        self._start = process_bytes()
        self._noted_ms = before.service_ms

    @property
    def bytes(self) -> int:
        """The bytes written since the store was created."""
        return self._before.bytes + process_bytes() - self._start

    def note(self, connection: sqlite3.Connection, service_ms: int, *, at_once: bool = False) -> None:
        """Write the count within a transaction, if it is due."""
        if at_once or service_ms - self._noted_ms >= NOTE_MS:
            tables.write_fact(connection, BYTES_WRITTEN, f"{self.bytes} {service_ms}")
            self._noted_ms = service_ms


def process_bytes() -> int:
    """Return the bytes that this process has written to disks (proc(5), write_bytes); 0 where they are not counted."""
    try:
        lines = _IO.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.removeprefix(_COUNTER)) for line in lines if line.startswith(_COUNTER)), 0)


def load(connection: sqlite3.Connection) -> BytesWritten:
    """Return the latest stored count."""
    noted = (tables.read_fact(connection, BYTES_WRITTEN) or "0 0").split()
    return BytesWritten(int(noted[0]), int(noted[1]))


def read_written(path: Path) -> BytesWritten:
    """Return the latest stored count, beside the running service or without it."""
    with closing(database.open_for_reading(path)) as connection:
        return load(connection)
