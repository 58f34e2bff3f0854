"""The one connection that writes: a transaction on it is on disk as a whole, or not at all, or of unknown outcome."""

from __future__ import annotations

import logging
import secrets
import sqlite3
from pathlib import Path

from agent.clock import Clock
from agent.store.errors import FAILURES, DamagedStoreError, UnknownOutcomeError, is_damage
from agent.store.files.use_mark import UseMark
from agent.store.files.write_ahead_log import WriteAheadLog
from agent.store.memory import Memory
from agent.store.schema import database
from agent.store.schema.tables import EpochStart
from contract.record import ClockTrust

log = logging.getLogger(__name__)

EPOCH_BYTES = 8


class WritingConnection:
    """The connection and its write-ahead log, opened again after an error that closes it.

    Each opening begins an epoch. Runs on the writer's thread alone.
    """

    def __init__(
        self, path: Path, connect: database.Connect, memory: Memory, epoch: CurrentEpoch, mark: UseMark
    ) -> None:
        self._path = path
        self._connect = connect
        self._memory = memory
        self.epoch = epoch
        self._mark = mark
        self._connection: sqlite3.Connection | None = None
        self._log = WriteAheadLog(path)
        self._rows_before = 0
        """How many rows this connection had changed before its latest transaction."""
        self._log_is_cut = False
        """Whether the log is empty behind its last commit."""
        self._found_is_durable = False
        """Whether what this connection has found is on the medium, with nothing behind it in the log."""
        self._lost: DamagedStoreError | None = None
        """Set once damage was detected: a checkpoint would write the contents of a replaced log into the file."""
        self.is_uncertain = False
        """Whether a transaction whose outcome is unknown may be on disk; the next one deletes its rows."""

    def start(self, connection: sqlite3.Connection) -> None:
        """Begin service on a connection that has just been opened."""
        self._open(connection)
        try:
            self.ensure_durable()
        except FAILURES as error:
            log.error("store=failing reason=%r effect=%r", str(error), "nothing is acked before the log is flushed")

    def get(self) -> sqlite3.Connection:
        """Return the connection, its files verified; open it again where an error has closed it.

        The caller will ack a duplicate, commit, or write the log back: all of these rely on earlier commits
        (decision 56).
        """
        if self._lost is not None:
            raise self._lost
        try:
            if self._connection is None:
                self._open(self._connect(self._path))
            elif self._log.has_changed():
                self._cut_log(self._connection)
        except Exception as error:
            self.lose_if_damaged(error)
            raise
        assert self._connection is not None
        return self._connection

    def ensure_durable(self) -> None:
        """Flush all that was committed before to the medium; raise one of FAILURES where that fails.

        What this connection has found may be the commit of a process that was killed, and behind it in the log may be
        what another transaction has left there: a salvage could take that for the event that is acked as a duplicate.
        """
        connection = self.get()
        if self._found_is_durable:
            return
        try:
            self._cut_log(connection)
        except Exception as error:
            self.lose_if_damaged(error)
            is_to_be_cut = self._lost is not None or not isinstance(error, sqlite3.Error) or self._log.has_rest()
            if is_to_be_cut:
                raise
            self._found_is_durable = True  # on a full disk, too: only the checkpoint needs space

    def begin(self) -> sqlite3.Connection:
        """Begin a transaction on the connection, its files verified; `commit` or `roll_back` ends it."""
        connection = self.get()
        try:
            if not self._log_is_cut:
                self._cut_log(connection)
            self._rows_before = connection.total_changes
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self.roll_back(connection, error)
            raise
        return connection

    def commit(self, connection: sqlite3.Connection) -> None:
        """End a transaction; raise UnknownOutcomeError where it may be on disk or not."""
        try:
            self._commit(connection)
        except Exception as error:
            self.lose_if_damaged(error)
            raise
        self.is_uncertain = False
        if not self._mark.names(self._log.round):
            self.note_end()  # it has begun a round, maybe without any event

    def roll_back(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """End a transaction after an error, with nothing written."""
        self._log_is_cut = False
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up_connection()
        if isinstance(error, Exception):
            self.lose_if_damaged(error)

    def note_end(self) -> None:
        """Record the last position and the round of the log in the mark of use, before any ack."""
        self._mark.note(self._memory.end, self._log.round)

    def limit_log(self, *, at_once: bool = False) -> None:
        """Write the log back if it is long, or at once. SQLite itself would not verify its files before (decision 47).

        Raise nothing, since the transaction before is on disk.
        """
        try:
            if self._connection is not None and (at_once or self._log.is_long()):
                database.write_back(self._connection)
        except FAILURES as error:
            self.lose_if_damaged(error)

    def empty_log(self) -> None:
        """Write all of the log into the file itself, which then needs no mark of use."""
        if database.empty_log(self.get()):
            self._mark.remove()

    def lose_if_damaged(self, error: Exception) -> None:
        """Take no more transactions where an error means damage: the next opening salvages."""
        if self._lost is not None or not is_damage(error):
            return
        self._lost = DamagedStoreError(str(error))
        try:
            self._log.put_back()
        except OSError as failure:
            log.error("store=damaged rescue=failed reason=%r", str(failure))
        self._close()

    def close(self) -> None:
        """Close the connection, and remove the mark of use where SQLite has written all of the log back."""
        if self._close():
            self._mark.remove()
        self._mark.close()

    def _open(self, connection: sqlite3.Connection) -> None:
        try:
            self._log.open()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._log_is_cut = self._found_is_durable = False
        self.epoch.renew()
        self.note_end()  # a log that is empty may begin any round

    def _close(self) -> bool:
        """Close the connection; True where it was the last one of all, and SQLite has written the log back."""
        is_log_done = self._connection is not None and self._log.close_connection(self._connection)
        self._connection = None
        self._log.close()
        return is_log_done

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up_connection()
            raise UnknownOutcomeError(f"COMMIT failed: {error}") from error
        self._log.check(written=connection.total_changes > self._rows_before)

    def _cut_log(self, connection: sqlite3.Connection) -> None:
        """Make the log end with its last commit, on the medium, too."""
        self._log.flush()
        self._log.cut(connection)
        self._log_is_cut = self._found_is_durable = True

    def _give_up_connection(self) -> None:
        assert self._connection is not None
        self.is_uncertain = True
        self._log.close_connection(self._connection)
        self._connection = None


class CurrentEpoch:
    """The current epoch: a new one for each opening of the writing connection, and after each commit that has failed.

    Written on the writer's thread; its name is read on any.
    """

    def __init__(self, clock: Clock, service: ServiceClock) -> None:
        self._clock = clock
        self._service = service
        self.renew()

    def renew(self) -> None:
        """Begin another epoch: what may have been labelled under this one must not be labelled so again."""
        clock = self._clock
        self.start = EpochStart(
            secrets.token_hex(EPOCH_BYTES),  # which was never used
            clock.boot(),
            clock.uptime_ms(),
            clock.wall_ms(),
            clock.trust() is ClockTrust.TRUSTED,
            self._service.now_ms(),
        )
        self.first_position: int | None = None
        """Position of the epoch's first event; None until that is on disk."""


class ServiceClock:
    """Continues from the service time of the last commit; it does not advance while no agent runs."""

    def __init__(self, clock: Clock, before_ms: int) -> None:
        self._clock = clock
        self._offset_ms = before_ms - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._offset_ms + self._clock.monotonic_ms()
