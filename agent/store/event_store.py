"""The event store: SQLite on disk, one thread that writes, progress as ranges of positions."""

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.clock import Clock
from agent.config.lanes import LANE_SHARE
from agent.config.settings import IdentitySettings, StoreSettings
from agent.store.counts import EventCounts
from agent.store.errors import StoreError
from agent.store.files.lock import lock
from agent.store.fingerprints.index import SEGMENT_EVENTS, IndexBounds
from agent.store.gateway_events import GatewayCondition
from agent.store.layout import FILE_NAME
from agent.store.outbox import StoreOutbox
from agent.store.port import OutboxError, Submission
from agent.store.recovery.open import open_store
from agent.store.schema import database
from agent.store.write.committer import Answers, Committer
from agent.store.write.maintenance import Maintenance
from agent.store.write.removal import Removal
from agent.store.write.transaction import Transactions
from agent.store.write.writer import Writer

log = logging.getLogger(__name__)

SEGMENT_EVENTS_MIN = 1_024
SEGMENT_STORE_BYTES = 2_048
"""A small store has smaller segments, of one fingerprint for so many of its bytes: only sealed ones are bounded."""


class EventStore:
    """Stores events durably: takes submissions (`port.Intake`), and passes events to its outbox."""

    def __init__(  # noqa: PLR0913  # its parts
        self,
        folder: Path,
        gateway: str,
        settings: StoreSettings,
        identity: IdentitySettings,
        clock: Clock,
        *,
        connect: database.Connect = database.open_for_service,
        segment_events: int = SEGMENT_EVENTS,
        lane: str = "",
        settings_hash: str = "",
    ) -> None:
        """Create the store of a lane, whose name is empty for the default lane."""
        share = LANE_SHARE if lane else 1
        self._lane = lane
        self._settings_hash = settings_hash
        self._path = folder / FILE_NAME
        self._gateway = gateway
        self._settings = settings
        self.bytes_max = settings.max_bytes
        self._identity = identity
        self._clock = clock
        self._connect = connect
        events_max = max(SEGMENT_EVENTS_MIN, settings.max_bytes // SEGMENT_STORE_BYTES)
        self._bounds = IndexBounds(identity.memory_bytes // share, min(segment_events // share, events_max))
        self._answered_duplicates: list[Callable[[], int]] = []
        self._forget_answers: list[Callable[[], object]] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises the error that ended the writer, where no end was requested."""

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
        """Commit the queued submissions, write the marks, close."""
        await asyncio.to_thread(self._close)
        os.close(self._lock)

    def submit(self, submission: Submission) -> None:
        self._writer.put(submission)

    def add_transport(self, duplicates: Callable[[], int], forget_answers: Callable[[], None]) -> None:
        """Register a transport that recognises and answers retransmissions itself.

        Its duplicates are counted with the store's own. `forget_answers` is called in the loop's thread when events
        are given up, so that their resend is stored as new.
        """
        self._answered_duplicates.append(duplicates)
        self._forget_answers.append(lambda: self._loop.call_soon_threadsafe(forget_answers))

    def trouble(self, *, trial: bool = False) -> str:
        """Return why no event can be stored now, or an empty text; with `trial` only after a write to the disk.

        Blocks for the commits in progress.
        """
        return self._writer.call(lambda: self._transactions.trouble(trial=trial))

    def flush(self) -> None:
        """Write the marks and the counts of duplicates that wait for a transaction; raise one of FAILURES; blocks."""
        self._writer.call(self._maintenance.flush)

    async def barrier(self) -> None:
        """Wait for an iteration of the writer: submissions queued before are then on disk, or refused."""
        turned: asyncio.Future[None] = self._loop.create_future()
        self._writer.put(lambda: self._loop.call_soon_threadsafe(_resolve, turned))
        await turned

    def counts(self) -> EventCounts:
        """Count the events that are new, forwarded, processed and still kept, and lost."""
        return self._memory.progress.counts(self._memory.first_kept)

    def totals(self) -> EventCounts:
        """Count the same, with all events processed since the store was created."""
        return self._memory.progress.counts(1)

    def disk_bytes(self) -> int:
        """Return the size of the store's files."""
        return database.disk_bytes(self._path)

    def written_bytes(self) -> int:
        """Return how many bytes were written to the disk since the store was created."""
        return self._transactions.wear.bytes

    def _open(self) -> None:
        connection, self._memory = open_store(self._path, self._connect, self._clock, self._identity, self._bounds)
        clock, settings = self._clock, self._settings
        self._transactions = Transactions(
            self._path, self._connect, settings, clock, self._memory, self._report_failure, self._answered_duplicates
        )
        self._transactions.connection.start(connection)
        self.commit_durations = self._transactions.durations
        """How long the commits took, since the start."""
        removal = Removal(self._transactions, self._forget_answers)
        state = partial(
            GatewayCondition,
            lane=self._lane,
            settings_hash=self._settings_hash,
            retention_seconds=int(self._identity.retention_seconds),
        )
        self._committer = Committer(self._transactions, removal, self._gateway, clock, self._announce, state)
        self._maintenance = Maintenance(
            self._transactions,
            removal,
            clock,
            settings.keep_processed_seconds,
            self._identity.retention_seconds,
            self._committer.declare,
        )
        self._writer = Writer(
            self._committer.commit,
            self._maintenance.run_due,
            self._report_failure,
            events_max=settings.commit_events_max,
            delay_seconds=settings.commit_delay_ms_max / 1000,
        )
        self.outbox = StoreOutbox(self._path, self._transactions, self._committer, self._writer, clock)
        """As the forwarder and the receipts use the store."""

    def _close(self) -> None:
        damage, connection = self._transactions.damage, self._transactions.connection
        self.outbox.stop()
        self._writer.finish()
        try:
            with damage.reported():
                self._transactions.flush()
                self._transactions.note_wear()
        except (StoreError, OutboxError) as error:
            log.error("store=closing marks=lost reason=%r effect=%r", str(error), "forwarded events are sent again")
        if damage.is_damaged():
            connection.close()  # before the reader: SQLite's last connection writes the log back
        self.outbox.close()
        if damage.is_damaged():
            return
        try:
            with damage.reported():
                connection.empty_log()
        except (StoreError, OutboxError) as error:
            log.warning("store=closing checkpoint=failed reason=%r", str(error))
        connection.close()

    def _announce(self, answers: Answers) -> None:
        self._loop.call_soon_threadsafe(_answer, answers)

    def _report_failure(self, error: BaseException) -> None:
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # a failure while closing has no waiter: asyncio would log a stack


def _answer(answers: Answers) -> None:
    for submission, outcome in answers:
        try:
            submission.done(outcome)
        except Exception:  # a sender that cannot be answered must not keep the others waiting
            log.exception("store=answer delivered=no")


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
