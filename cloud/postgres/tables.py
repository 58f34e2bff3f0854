"""Events and quarantine in PostgreSQL: opened, checked, and filled from a staging table, with or without Spark."""

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cloud.errors import StopError
from cloud.postgres.connection import identifier
from cloud.postgres.statements import EVENTS, OWN, QUARANTINE, Statements
from cloud.table import widening
from cloud.table.sink import Written

_COMMENT = "oncegate:"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
GENERATED = " (generated)"
"""Follows the type of a column that nobody can write."""
NAME_BYTES_MAX = 63
_PRESENT = """
    SELECT attname, format_type(atttypid, atttypmod)
                    || CASE WHEN attgenerated <> '' OR attidentity = 'a' THEN %s ELSE '' END FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Own:
    """The parts of a staging table that the user's own processing adds."""

    columns: Sequence[str] = ()
    """Those of the transform."""
    rejected: int = 0
    version: int | None = None
    """That of the batch, where its new fingerprints are to be kept for the effects."""


class PostgresTables:
    """The tables of one writer, or of several that share them; the events' comment is their id."""

    LOCK = "SELECT pg_advisory_xact_lock(hashtext('oncegate'))"
    """Excludes others that create or widen tables, until the transaction ends."""

    def __init__(self, connection: psycopg.Connection, table: str, quarantine: str, retention_seconds: int) -> None:
        """Create the tables that are absent; raise StopError where they are of another program.

        Warn about a server that does not flush.
        """
        self.sql = Statements(table, quarantine)
        self._table = table
        self._quarantine = quarantine
        self._retention_seconds = retention_seconds
        row = connection.execute("SHOW fsync").fetchone()
        if row and row[0] != "on":
            logger.warning("postgres=unsafe reason='fsync=off' effect='a power failure loses receipted events'")
        self.id = self._open(connection)

    def check_id(self, connection: psycopg.Connection) -> None:
        """Raise StopError where the table is not the one that was opened."""
        if (comment := self._comment(connection)) != f"{_COMMENT}{self.id}":
            raise StopError(
                f"table {self._table}: its comment is {comment!r}, and this job has opened the table {self.id}: it "
                "was dropped and recreated while the job ran, or its comment was changed. Nothing more is "
                f"committed. If it is the same table, set its comment to '{_COMMENT}{self.id}', and start again. "
                f"Otherwise start with a new checkpoint and --succeeds {self.id}"
            )

    def move(
        self,
        connection: psycopg.Connection,
        staging: str | sql.Identifier,
        topic: str,
        topic_id: str,
        own: Own = Own(),
    ) -> Written:
        """Move the rows of a staging table into the tables, and drop it, within the caller's transaction."""
        counted = connection.execute(self.sql(Statements.COUNT, staging)).fetchone()
        good, late, bad = counted or (0, 0, 0)
        of = {"topic_id": topic_id, "topic": topic, "retention": self._retention_seconds}
        connection.execute(self.sql(Statements.SET_ASIDE_DATA, staging))
        pairs = [(name, f"{OWN}{number}") for number, name in enumerate(own.columns)]
        if own.version is None:
            rows = connection.execute(self.sql(Statements.INSERT, staging, pairs)).rowcount
        else:
            insert = self.sql(Statements.INSERT_AND_KEEP, staging, pairs)
            rows = connection.execute(insert, {"version": own.version}).rowcount
        self.check_id(connection)  # the insertion's lock keeps the table until the commit
        connection.execute(self.sql(Statements.QUARANTINE_BAD, staging), of)
        reused = connection.execute(self.sql(Statements.QUARANTINE_REUSED, staging), of).rowcount
        connection.execute(self.sql(Statements.DROP_STAGING, staging))
        return Written(rows, late, bad + reused - own.rejected, good - rows - reused, rejected=own.rejected)

    def _open(self, connection: psycopg.Connection) -> str:
        with connection.transaction():
            connection.execute(self.LOCK)  # for two first starts at once
            connection.execute(self.sql(Statements.CREATE_OWNER))
            connection.execute(self.sql.create_quarantine)
            regclass = self.sql("{table}").as_string(connection)
            if (row := connection.execute("SELECT to_regclass(%s)", (regclass,)).fetchone()) and row[0] is None:
                connection.execute(self.sql.create_table)
                connection.execute(self.sql(Statements.CREATE_RECEIVED))
                connection.execute(self.sql(Statements.CREATE_OWN))
                comment = f"{_COMMENT}{uuid.uuid4()}"
                connection.execute(self.sql(f"COMMENT ON TABLE {{table}} IS '{comment}'"))
            comment = self._comment(connection)
            if not comment.startswith(_COMMENT) or not _ID.fullmatch(comment.removeprefix(_COMMENT)):
                raise StopError(
                    f"table {self._table}: it is not of this job (its comment is {comment!r}, not '{_COMMENT}<id>'): "
                    f"use another. If its comment was changed, restore it; the id is in {self._table}_owner"
                )
            widen(connection, identifier(self._table), EVENTS)
            self._check_key(connection)
            widen(connection, identifier(self._quarantine), QUARANTINE)
        return comment.removeprefix(_COMMENT)

    def _check_key(self, connection: psycopg.Connection) -> None:
        """Raise StopError where the fingerprint alone is no key, as in a table that is partitioned by day."""
        try:
            connection.execute(self.sql(Statements.TRY_KEY))
        except psycopg.errors.InvalidColumnReference:
            raise StopError(
                f"table {self._table}: it has no unique key of the fingerprint alone, without which an event could be "
                "in it twice. Of partitioned tables, only those by HASH (fingerprint) can have one"
            ) from None

    def _comment(self, connection: psycopg.Connection) -> str:
        regclass = self.sql("{table}").as_string(connection)
        row = connection.execute(self.sql(Statements.READ_ID), (regclass,)).fetchone()
        return (row[0] if row else None) or ""


def present_columns(connection: psycopg.Connection, table: sql.Identifier) -> dict[str, str]:
    """Return the columns of a table, and their types."""
    return dict(connection.execute(_PRESENT, (GENERATED, table.as_string(connection))).fetchall())


def widen(
    connection: psycopg.Connection, table: sql.Identifier, columns: Mapping[str, str], *by: tuple[str, str]
) -> None:
    """Add the columns that a table lacks, given with their types; raise StopError where one has another type."""
    name_of_table = table.as_string(connection)
    if long := [name for name in columns if len(name.encode()) > NAME_BYTES_MAX]:
        raise StopError(f"table {name_of_table}: PostgreSQL takes names of {NAME_BYTES_MAX} bytes, not {long[0]}")
    for name in widening.missing(name_of_table, present_columns(connection, table), columns, *by):
        added = sql.SQL("ALTER TABLE {} ADD COLUMN {} " + columns[name]).format(table, sql.Identifier(name))
        connection.execute(added)
        logger.info("table=%s stage=widened column=%s", name_of_table, name)
