"""Transactions on the one connection that writes: all on disk, or nothing, or an outcome that nobody knows."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from agent.store import database, gaps, known_rows, tables
from agent.store.copy_count import CopyCount
from agent.store.durations import Durations
from agent.store.log_file import LogFile
from agent.store.opening import Memory
from agent.store.wear import Wear

log = logging.getLogger(__name__)


class UnknownOutcomeError(Exception):
    """A COMMIT failed: whether it is on disk is unknown, so the store has to be reopened under a new epoch."""


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
        self._lost: database.DamagedStoreError | None = None
        """Set once the log is gone: a checkpoint would write into the file what stands in its place."""
        self.copies = CopyCount()
        self.wear = Wear(memory.written)
        self.durations = Durations()
        """Of the transactions that reached the disk."""

    def open(self, connection: sqlite3.Connection) -> None:
        """Take the connection."""
        self._connection = connection
        self._log_is_cut = False
        self._opened()

    def connection(self) -> sqlite3.Connection:
        """Return the writing connection; open it anew where an error has closed it."""
        if self._lost is not None:
            raise self._lost
        if self._connection is None:
            self.open(self._connect(self._path))
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._log.close()

    def run(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Run one transaction, which also carries what the marks have pending; raise with nothing written."""
        connection = self.connection()
        start = time.monotonic()
        changes = self._memory.progress.pending()
        if not self._log_is_cut:
            self._log.cut(connection)
            self._log_is_cut = True
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
            known_rows.count_copies(connection, copies)
        except BaseException:
            self._roll_back(connection)
            raise
        self._commit(connection, written=connection.total_changes > rows_before)
        self._uncertain_from = None
        self.durations.add(time.monotonic() - start)
        self.copies.written(copies)
        self._memory.progress.written(changes)

    def _commit(self, connection: sqlite3.Connection, *, written: bool) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up_connection()
            raise UnknownOutcomeError(f"COMMIT failed: {error}") from error
        try:
            self._log.check(written=written)
        except database.DamagedStoreError as error:
            self._lost = error
            self._rescue(connection)
            self.close()
            raise

    def _rescue(self, connection: sqlite3.Connection) -> None:
        """Bring into the file what a log holds that was only removed: SQLite still has it open."""
        if self._log.is_whole():
            try:
                database.empty_log(connection)
            except sqlite3.Error as error:
                log.error("store=damaged rescue=failed reason=%r", str(error))

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        self._log_is_cut = False
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._give_up_connection()

    def _give_up_connection(self) -> None:
        """Close the connection; the next transaction deletes what this one may have brought to the disk."""
        self._uncertain_from = self._memory.end + 1
        self.close()
