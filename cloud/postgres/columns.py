"""The columns of a table in PostgreSQL that another release may have made."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import psycopg
from psycopg import sql

from cloud.errors import StopError
from cloud.table import widening

logger = logging.getLogger(__name__)

GENERATED = " (generated)"
"""Follows the type of a column that nobody can write."""
NAME_BYTES_MAX = 63
_PRESENT = """
    SELECT attname, format_type(atttypid, atttypmod)
                    || CASE WHEN attgenerated <> '' OR attidentity = 'a' THEN %s ELSE '' END FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""


def present(connection: psycopg.Connection, table: sql.Identifier) -> dict[str, str]:
    """Return the columns of a table, and their types."""
    return dict(connection.execute(_PRESENT, (GENERATED, table.as_string(connection))).fetchall())


def widen(
    connection: psycopg.Connection, table: sql.Identifier, columns: Mapping[str, str], *by: tuple[str, str]
) -> None:
    """Add the columns that a table lacks, given with their types; raise StopError where one has another type."""
    name_of_table = table.as_string(connection)
    if long := [name for name in columns if len(name.encode()) > NAME_BYTES_MAX]:
        raise StopError(f"table {name_of_table}: PostgreSQL takes names of {NAME_BYTES_MAX} bytes, not {long[0]}")
    for name in widening.missing(name_of_table, present(connection, table), columns, *by):
        added = sql.SQL("ALTER TABLE {} ADD COLUMN {} " + columns[name]).format(table, sql.Identifier(name))
        connection.execute(added)
        logger.info("table=%s stage=widened column=%s", name_of_table, name)
