"""Agents with one fault each, which the crashes must reveal; each function is called in the agent's process."""

import sqlite3
from pathlib import Path

from tests.simulators import mutants

LATE_SECONDS = 0.02


def ack_before_commit() -> None:
    """Ack at once, and commit a moment later."""
    mutants.LATE_SECONDS = LATE_SECONDS
    mutants.ack_before_commit()


def commits_without_flush() -> None:
    """Ack commits that are in the page cache only."""
    from agent.store.schema import database

    prepare = database.prepare

    def prepare_without_flush(connection: sqlite3.Connection, path: Path) -> None:
        prepare(connection, path)
        connection.execute("PRAGMA synchronous = OFF")

    database.prepare = prepare_without_flush


def errors_of_commits_ignored() -> None:
    """Ack a commit that has failed."""
    from agent.store.errors import UnknownOutcomeError
    from agent.store.write.connection import WritingConnection

    commit = WritingConnection._commit

    def commit_and_go_on(self: WritingConnection, connection: sqlite3.Connection) -> None:
        try:
            commit(self, connection)
        except UnknownOutcomeError:
            self._open(self._connect(self._path))

    WritingConnection._commit = commit_and_go_on  # type: ignore[method-assign]
