"""Transactions on the one connection that writes: all on disk, or nothing, or an outcome that nobody knows."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.store.errors import DamagedStoreError, UnknownOutcomeError, is_damage
from agent.store.files.write_ahead_log import LogFile
from agent.store.fingerprints import rows
from agent.store.fingerprints.rows import Copies
from agent.store.memory import Memory
from agent.store.progress import Change
from agent.store.schema import database, gaps, tables
from agent.store.wear import Wear
from agent.store.write.commit_seconds import Durations
from agent.store.write.duplicate_count import CopyCount

log = logging.getLogger(__name__)


class Transactions:
    """The writing connection, opened anew after an error that closes it; runs on the writer's thread alone."""

    def __init__(
        self,
        path: Path,
        connect: database.Connect,
        memory: Memory,
        service: Callable[[], int],
        opened: Callable[[], None],
    ) -> None:
        self._path = path
        self._connect = connect
        self._memory = memory
        self._service = service
        self._opened = opened
        self._connection: sqlite3.Connection | None = None
        self._uncertain_from: int | None = None
        self._log = LogFile(path)
        self._log_is_cut = False
        """Whether nothing stands in the log behind its last commit."""
        self._lost: DamagedStoreError | None = None
        """Set once damage was met: a checkpoint would write into the file what stands in the log's place."""
        self.copies = CopyCount()
        self.wear = Wear(memory.written)
        self.durations = Durations()
        """Of the transactions that reached the disk."""

    def open(self, connection: sqlite3.Connection) -> None:
        """Take the connection, or close it and raise."""
        try:
            self._log.open()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._log_is_cut = False
        self._opened()

    def connection(self) -> sqlite3.Connection:
        """Return the writing connection, its files looked at; open it anew where an error has closed it.

        Whoever asks for it is going to ack a copy, commit, or write the log back: all of these rest on what was
        committed before (decision 56).
        """
        if self._lost is not None:
            raise self._lost
        try:
            if self._connection is None:
                self.open(self._connect(self._path))
            elif self._log.has_changed():
                self._cut_log(self._connection)
        except Exception as error:
            self.lose_if_damaged(error)
            raise
        assert self._connection is not None
        return self._connection

    @property
    def log_round(self) -> int | None:
        """The log's round at the last look; None where the log is empty."""
        return self._log.round

    def ensure_durable(self) -> None:
        """Have all that was committed before in the store's files and on the medium; raise OSError where that fails."""
        self.connection()
        self._log.flush()

    def close(self) -> bool:
        """Close the connection; True where it was the last one of all, and SQLite has brought all into the file."""
        is_log_done = self._connection is not None and self._log.close_connection(self._connection)
        self._connection = None
        self._log.close()
        return is_log_done

    def run(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Run one transaction, which also carries what the marks have pending; raise with nothing written."""
        connection = self.connection()
        start = time.monotonic()
        changes = self._memory.progress.pending()
        try:
            copies = self._run(connection, write, changes)
        except Exception as error:
            self.lose_if_damaged(error)
            raise
        self._uncertain_from = None
        self.durations.add(time.monotonic() - start)
        self.copies.written(copies)
        self._memory.progress.written(changes)
        if self._log.is_long():
            self._write_back(connection)

    def lose_if_damaged(self, error: Exception) -> None:
        """Take no more transactions once damage was met: the next opening salvages."""
        if self._lost is not None or not is_damage(error):
            return
        self._lost = DamagedStoreError(str(error))
        try:
            self._log.put_back()
        except OSError as failure:
            log.error("store=damaged rescue=failed reason=%r", str(failure))
        self.close()

    def _run(
        self, connection: sqlite3.Connection, write: Callable[[sqlite3.Connection], None], changes: Sequence[Change]
    ) -> Copies:
        if not self._log_is_cut:
            self._cut_log(connection)
        rows_before = connection.total_changes
        try:
            connection.execute("BEGIN IMMEDIATE")
            if self._uncertain_from is not None:
                tables.discard_from(connection, self._uncertain_from)
                gaps.retract(connection, self._uncertain_from)
            write(connection)
            self.wear.note(connection, self._service())
            for change in changes:
                change(connection)
            copies = self.copies.pending()
            rows.count_copies(connection, copies)
        except BaseException:
            self._roll_back(connection)
            raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up_connection()
            raise UnknownOutcomeError(f"COMMIT failed: {error}") from error
        self._log.check(written=connection.total_changes > rows_before)
        return copies

    def _cut_log(self, connection: sqlite3.Connection) -> None:
        """Have the log end with its last commit, on the medium, too."""
        self._log.flush()
        self._log.cut(connection)
        self._log_is_cut = True

    def _write_back(self, connection: sqlite3.Connection) -> None:
        """Write the log back; not left to SQLite, which does so before anyone has looked whether it is the store's."""
        try:
            database.write_back(connection)
        except sqlite3.Error as error:
            self.lose_if_damaged(error)

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._log_is_cut = False
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up_connection()

    def _give_up_connection(self) -> None:
        """Close the connection; the next transaction deletes what this one may have brought to the disk."""
        assert self._connection is not None
        self._uncertain_from = self._memory.end + 1
        self._log.close_connection(self._connection)
        self._connection = None
