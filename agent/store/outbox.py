"""The outbox of the store, as the forwarder and the receipts use it."""

import logging
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from agent.clock import Clock
from agent.store.errors import FAILURES, DamagedEventError, DamagedStoreError, is_damage
from agent.store.port import Batch, LabelRange, OutboxError, StoredEvent
from agent.store.progress import ForwardingTimes
from agent.store.read.events import labelled, read_commits
from agent.store.schema import database, tables
from agent.store.write.committer import Committer
from agent.store.write.transaction import Transactions
from agent.store.write.writer import Writer, do_nothing

log = logging.getLogger(__name__)

FAILING_PAUSE_SECONDS = 0.2
"""How long a reader waits where it can have neither an event nor its gap."""


class StoreOutbox:
    """Implements `port.Outbox`, which states what its methods promise.

    It reads on a connection of its own, and writes through the writer's thread.
    """

    def __init__(
        self,
        path: Path,
        transactions: Transactions,
        committer: Committer,
        writer: Writer,
        clock: Clock,
    ) -> None:
        self._path = path
        self._memory = transactions.memory
        self._transactions = transactions
        self._committer = committer
        self._writer = writer
        self._clock = clock
        self._damage = transactions.damage
        self._reader = database.open_for_reading(path)
        self._reading = threading.Lock()
        self.times = ForwardingTimes()
        self._stopped = threading.Event()

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        while (new := self._memory.progress.next_new(after)) is not None:
            first, last = new
            try:
                events = self._read(first, min(last, first + events_max - 1), bytes_max)
                if events:
                    return events
                if self._has_left(first, after):
                    continue
                self._damage.report(DamagedStoreError(f"{self._path}: no event at position {first}"))
            except DamagedEventError as damage:
                if self._give_up_damaged(damage):
                    continue
            except (sqlite3.Error, DamagedStoreError) as error:
                if not is_damage(error):
                    raise OutboxError(f"the store fails: {error}") from error
                self._damage.report(error)
            self._stopped.wait(FAILING_PAUSE_SECONDS)
            break
        return ()

    def end(self) -> int:
        return self._memory.progress.end

    def wait(self, after: int, seconds: float) -> bool:
        return self._memory.progress.wait(after, seconds)

    def pop_returned(self) -> bool:
        return self._memory.progress.pop_returned()

    def epoch(self) -> str:
        return self._transactions.connection.epoch.start.epoch

    def has_epoch(self, epoch: str) -> bool:
        return self._memory.epochs.has(epoch)

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        self._memory.progress.mark_forwarded(batch, note)
        self.times.note_forwarded(batch, self._clock.wall_ms())
        self._writer.wake()

    def forwarded(self) -> Sequence[Batch]:
        return self._memory.progress.forwarded()

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        self._memory.progress.mark_processed(batches, self._clock.monotonic_ms(), self._memory.first_kept)
        self.times.note_processed(batches, self._clock.wall_ms())
        self._writer.wake()

    def return_batches(self, batches: Sequence[Batch]) -> None:
        self._memory.progress.return_batches(batches)
        self._writer.wake()

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        return tuple(self._memory.epochs.label_ranges(first, last))

    def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
        with self._damage.reported():
            return self._writer.call(lambda: self._committer.removal.release(first, last, note))

    def give_up(self, position: int, reason: str) -> None:
        with self._damage.reported():
            self._writer.call(lambda: self._committer.give_up(position, position, reason))

    def expire(self, first: int, last: int, lifetime_seconds: float) -> int:
        with self._damage.reported():
            return self._writer.call(lambda: self._committer.expire(first, last, int(lifetime_seconds * 1000)))

    def fact(self, name: str) -> str | None:
        with self._damage.reported(), self._reading:
            return tables.read_fact(self._reader, name)

    def set_fact(self, name: str, value: str) -> None:
        def run() -> None:
            with self._transactions.begin() as sql:
                tables.write_fact(sql, name, value)

        with self._damage.reported():
            self._writer.call(run)

    def stop(self) -> None:
        """End the pause of a reader that waits for a failing disk."""
        self._stopped.set()

    def close(self) -> None:
        with self._reading:
            self._reader.close()

    def _read(self, first: int, last: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Read consecutive events from `first` on; raise DamagedEventError only where the first is damaged."""
        events: list[StoredEvent] = []
        size = 0
        try:
            with self._reading:
                for commit in read_commits(self._reader, first, last):
                    if commit[0].position != first + len(events):
                        break
                    for event in labelled(commit, self._memory.epochs):
                        events.append(event)
                        size += len(event.tail)
                        if size >= bytes_max:
                            return events
        except DamagedEventError:
            if not events:
                raise
        return events

    def _has_left(self, first: int, after: int) -> bool:
        """Whether a position that has no event is no longer new: the writer may just have dropped it."""
        self._writer.call(do_nothing)
        new = self._memory.progress.next_new(after)
        return new is None or new[0] != first

    def _give_up_damaged(self, damage: DamagedEventError) -> bool:
        """Make a gap of what cannot be read; return False where the disk refuses even that."""
        log.error("store=damaged reason=%r effect=%r", str(damage), "given up, declared by an event")
        try:
            self._writer.call(lambda: self._committer.give_up(damage.first, damage.last, "wrong checksum"))
        except FAILURES as error:
            if is_damage(error):
                self._damage.report(error)
            return False
        return True
