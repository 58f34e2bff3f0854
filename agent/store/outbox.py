"""The new events for the way out: what is damaged among them is given up, and for a disk that refuses is waited."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.store.errors import (
    FAILURES,
    DamagedEventError,
    DamagedStoreError,
    is_damage,
)
from agent.store.memory import Memory
from agent.store.port import OutboxError, StoredEvent
from agent.store.read.events import read_packed, stored
from agent.store.schema import database, tables
from agent.store.schema.gaps import Gap
from agent.store.write.committer import Committer
from agent.store.write.writer import Writer, do_nothing

log = logging.getLogger(__name__)

FAILING_PAUSE_SECONDS = 0.2
"""How long a reader waits where neither an event nor its gap can be had."""


class NewEvents:
    """The connection that reads; used by any thread but the writer's, which it asks to give up what is damaged."""

    def __init__(
        self,
        path: Path,
        memory: Memory,
        committer: Committer,
        writer: Writer,
        report_damage: Callable[[BaseException], None],
    ) -> None:
        self._path = path
        self._memory = memory
        self._committer = committer
        self._writer = writer
        self._report_damage = report_damage
        self._reader = database.open_for_reading(path)
        self._reading = threading.Lock()
        self._stopped = threading.Event()

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Return the next new events above a position, at least one where there is one that can be read."""
        while (new := self._memory.progress.next_new(after)) is not None:
            first, last = new
            try:
                events = self._read(first, min(last, first + events_max - 1), bytes_max)
                if events:
                    return events
                if self._has_left(first, after):
                    continue
                self._report_damage(DamagedStoreError(f"{self._path}: no event at position {first}"))
            except DamagedEventError as damage:
                if self._give_up(damage):
                    continue
            except (sqlite3.Error, DamagedStoreError) as error:
                if not is_damage(error):
                    raise OutboxError(f"the store fails: {error}") from error
                self._report_damage(error)
            self._stopped.wait(FAILING_PAUSE_SECONDS)
            break
        return ()

    def fact(self, name: str) -> str | None:
        """Read a fact."""
        with self._reading:
            return tables.read_fact(self._reader, name)

    def stop(self) -> None:
        """Keep nobody waiting any longer."""
        self._stopped.set()

    def close(self) -> None:
        """Close the connection."""
        with self._reading:
            self._reader.close()

    def _read(self, first: int, last: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Read consecutive events from `first` on; raise DamagedEventError only where the first is damaged."""
        events: list[StoredEvent] = []
        size = 0
        try:
            with self._reading:
                for packed in read_packed(self._reader, first, last):
                    if packed.position != first + len(events):
                        break
                    events.append(stored(packed, self._memory.epochs))
                    size += len(packed.tail)
                    if size >= bytes_max:
                        break
        except DamagedEventError:
            if not events:
                raise
        return events

    def _has_left(self, first: int, after: int) -> bool:
        """Whether a position that has no event is no longer new: the writer may just have dropped it."""
        self._writer.call(do_nothing)
        new = self._memory.progress.next_new(after)
        return new is None or new[0] != first

    def _give_up(self, damage: DamagedEventError) -> bool:
        """Make a gap of what cannot be read; False where the disk refuses even that."""
        log.error("store=damaged reason=%r effect=%r", str(damage), "given up, declared by an event")
        try:
            self._writer.call(lambda: self._committer.give_up(Gap(damage.first, damage.last, "wrong checksum")))
        except FAILURES as error:
            if is_damage(error):
                self._report_damage(error)
            return False
        return True
