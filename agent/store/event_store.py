"""The event store: SQLite on disk, one thread that writes, ranges for progress."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.clock import Clock
from agent.config.settings import IdentitySettings, StoreSettings
from agent.store.errors import FAILURES, DamagedStoreError, StoreError, is_damage
from agent.store.files import swap
from agent.store.files.lock import lock
from agent.store.fingerprints.index import SEGMENT_EVENTS, IndexBounds
from agent.store.fingerprints.transient import spans_of
from agent.store.layout import FILE_NAME
from agent.store.outbox import NewEvents
from agent.store.port import Batch, LabelRange, OutboxError, StoredEvent, Submission
from agent.store.recovery.open import open_store
from agent.store.schema import database, tables
from agent.store.schema.gaps import Gap
from agent.store.write.commit_seconds import Durations
from agent.store.write.committer import Answers, Committer
from agent.store.write.maintenance import Housekeeping
from agent.store.write.writer import Writer

log = logging.getLogger(__name__)


class EventStore:
    """Keeps what was promised to the sensors; fulfils `Intake` and `Outbox` (port.py)."""

    def __init__(
        self,
        folder: Path,
        gateway: str,
        settings: StoreSettings,
        identity: IdentitySettings,
        clock: Clock,
        *,
        connect: database.Connect = database.open_for_service,
        segment_events: int = SEGMENT_EVENTS,
    ) -> None:
        self._path = folder / FILE_NAME
        self._gateway = gateway
        self._settings = settings
        self._identity = identity
        self._clock = clock
        self._connect = connect
        self._bounds = IndexBounds(identity.memory_bytes, segment_events)
        self._damaged = threading.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what ended the writer, where it was not asked to end."""

    async def __aenter__(self) -> Self:
        """Open the store, which may take seconds where it is large."""
        self._loop = asyncio.get_running_loop()
        self._lock = lock(self._path)
        try:
            await asyncio.to_thread(self._open)
        except BaseException:
            os.close(self._lock)
            raise
        self._writer.start()
        self._writer.put(self._committer.declare)
        return self

    async def __aexit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Commit what is queued, write the marks, close."""
        await asyncio.to_thread(self._close)
        os.close(self._lock)

    # Intake

    def submit(self, submission: Submission) -> None:
        """Queue a submission (Intake)."""
        self._writer.put(submission)

    def also_count(self, copies: Callable[[], int]) -> None:
        """Count the copies, too, that the ways in recognise and answer themselves."""
        self._committer.copies.at_the_door = copies

    def also_forget(self, forget: Callable[[], None]) -> None:
        """Call this in the loop's thread when events are forgotten, so that their resend is stored as new."""

        def tell() -> None:
            self._loop.call_soon_threadsafe(forget)

        self._committer.forgotten = tell

    # What it says of itself while it serves

    def trouble(self) -> str:
        """Return why no event can be stored now, empty where one can; blocks until the commits in work are done."""
        reasons: list[str] = []
        self._writer.call(lambda: reasons.append(self._committer.trouble()))
        return reasons[0]

    def trial(self) -> str:
        """Return why no event can be stored now, empty where a write that was tried for that is on disk; blocks."""
        reasons: list[str] = []
        self._writer.call(lambda: reasons.append(self._committer.trouble(trial=True)))
        return reasons[0]

    async def turn(self) -> None:
        """Return once the commit loop has come round: what was queued before is on disk, or refused."""
        come_round: asyncio.Future[None] = self._loop.create_future()

        def tell() -> None:
            self._loop.call_soon_threadsafe(_resolve, come_round)

        self._writer.put(tell)
        await come_round

    def counts(self) -> tuple[int, int, int, int]:
        """Count the events that are new, forwarded, processed and still kept, and lost."""
        return self._memory.progress.counts(self._memory.first_kept)

    def bytes_on_disk(self) -> int:
        """Return the size of the store's files."""
        return database.bytes_on_disk(self._path)

    def written_bytes(self) -> int:
        """Return what was written to the disk in all the store's life."""
        return self._committer.wear.bytes

    @property
    def bytes_max(self) -> int:
        """The bound of the store."""
        return self._settings.max_bytes

    @property
    def commit_durations(self) -> Durations:
        """How long the commits took, since the start."""
        return self._committer.durations

    # Outbox

    def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
        """Return the next new events above a position (Outbox)."""
        return self._new_events.read(after, events_max, bytes_max)

    def wait(self, after: int, seconds: float) -> bool:
        """Wait for a new event or a returned batch (Outbox)."""
        return self._memory.progress.wait(after, seconds)

    def take_returned(self) -> bool:
        """Whether batches were returned since the last call (Outbox)."""
        return self._memory.progress.take_returned()

    def epoch(self) -> str:
        """Return the epoch of this opening (Outbox)."""
        return self._committer.epoch()

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        """Note that the broker has a batch (Outbox)."""
        self._memory.progress.mark_forwarded(batch, note)
        self._writer.wake()

    def forwarded(self) -> Sequence[Batch]:
        """Return the batches that wait for their receipt (Outbox)."""
        return self._memory.progress.forwarded()

    def mark_processed(self, batches: Sequence[Batch]) -> None:
        """Note that the table has batches (Outbox)."""
        self._memory.progress.mark_processed(batches, self._clock.monotonic_ms(), self._memory.first_kept)
        self._writer.wake()

    def return_batches(self, batches: Sequence[Batch]) -> None:
        """Make batches new again (Outbox)."""
        self._memory.progress.return_batches(batches)
        self._writer.wake()

    def labels(self, first: int, last: int) -> Sequence[LabelRange]:
        """Return the labels of a range of positions (Outbox)."""
        return tuple(self._memory.epochs.label_ranges(first, last))

    def release(self, first: int, last: int, note: tuple[str, str]) -> None:
        """Be done with events for good (Outbox)."""
        with self._damage_reported():
            self._writer.call(lambda: self._committer.release(first, last, note))

    def give_up(self, position: int, reason: str) -> None:
        """Declare an event given up (Outbox)."""
        with self._damage_reported():
            self._writer.call(lambda: self._committer.give_up(Gap(position, position, reason)))

    def fact(self, name: str) -> str | None:
        """Read a fact (Outbox)."""
        with self._damage_reported():
            return self._new_events.fact(name)

    def set_fact(self, name: str, value: str) -> None:
        """Write a fact (Outbox)."""
        with self._damage_reported():
            self._writer.call(
                lambda: self._committer.transact(lambda connection: tables.write_fact(connection, name, value))
            )

    def _open(self) -> None:
        connection, self._memory = open_store(
            self._path, self._connect, self._clock, spans_of(self._identity), self._bounds
        )
        self._committer = Committer(
            self._path, self._connect, self._settings, self._gateway, self._clock, self._memory, self._announce
        )
        self._committer.damaged = self._report_damage
        self._committer.open(connection)
        self._housekeeping = Housekeeping(
            self._committer,
            self._memory,
            self._clock,
            self._settings.keep_processed_seconds,
            self._identity.retention_seconds,
        )
        self._writer = Writer(
            self._committer.commit,
            self._housekeeping.turn,
            self._report_failure,
            events_max=self._settings.commit_events_max,
            delay_seconds=self._settings.commit_delay_ms_max / 1000,
        )
        self._new_events = NewEvents(self._path, self._memory, self._committer, self._writer, self._report_damage)

    @contextmanager
    def _damage_reported(self) -> Iterator[None]:
        """Report damage that is met within, and raise it as DamagedStoreError; any other failure as OutboxError."""
        try:
            yield
        except FAILURES as error:
            if not is_damage(error):
                raise OutboxError(f"the store fails: {error}") from error
            self._report_damage(error)
            raise DamagedStoreError(str(error)) from error

    def _report_damage(self, error: BaseException) -> None:
        """Ask for a salvage: the service has to close this store and open it anew."""
        if not self._damaged.is_set():
            self._damaged.set()
            try:
                swap.suspect(self._path, str(error))
            except OSError as failure:
                log.error("store=damaged mark=failed reason=%r", str(failure))
            self._report_failure(DamagedStoreError(str(error)))

    def _close(self) -> None:
        self._new_events.stop()
        self._writer.finish()
        try:
            with self._damage_reported():
                self._housekeeping.flush()
                self._committer.note_wear()
        except (StoreError, OutboxError) as error:
            log.error("store=closing marks=lost reason=%r effect=%r", str(error), "forwarded events are sent again")
        if self._damaged.is_set():
            self._committer.close()  # before the reader: as the last connection SQLite would write the log back
        self._new_events.close()
        if not self._damaged.is_set():
            self._write_back()
            self._committer.close()

    def _write_back(self) -> None:
        """Bring all into the file itself, which then needs no log."""
        try:
            with self._damage_reported():
                self._committer.write_back()
        except (StoreError, OutboxError) as error:
            log.warning("store=closing checkpoint=failed reason=%r", str(error))

    def _announce(self, answers: Answers) -> None:
        self._loop.call_soon_threadsafe(_tell, answers)

    def _report_failure(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # what is met at the end has nobody waiting: asyncio would log a stack


def _tell(answers: Answers) -> None:
    for submission, outcome in answers:
        try:
            submission.done(outcome)
        except Exception:  # one sender that cannot be told must not keep the others waiting
            log.exception("store=answer told=no")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
