"""How the job reaches PostgreSQL: by a file, so that no password stands in arguments or in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cloud.errors import SinkError, StopError
from contract.files import PrivateFileError, read_private

CONNECT_SECONDS_MAX = 30


def read_connection(file: Path) -> str:
    """Read libpq's connection string or URI from a file that nobody else can read.

    The password may stand there, or where libpq looks for it: `passfile=…`, ~/.pgpass, `service=…`.
    """
    try:
        text = read_private(file).strip()
    except PrivateFileError as error:
        raise StopError(f"connection file {file}: {error}") from error
    try:
        given = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        raise StopError(f"connection file {file}: {str(error).strip()}") from None
    defaults = {"connect_timeout": str(CONNECT_SECONDS_MAX), "application_name": "oncegate"}
    return make_conninfo(**defaults | {name: str(value) for name, value in given.items() if value is not None})


@contextmanager
def connected(connection: str, *, autocommit: bool = True) -> Iterator[psycopg.Connection]:
    """Open a connection, and turn what goes wrong on it into an error of ours.

    A commit waits for the disk here, whatever the server's default: what is committed is receipted.
    """
    try:
        with psycopg.connect(connection, autocommit=True) as opened:
            opened.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
            )
            opened.autocommit = autocommit
            yield opened
    except psycopg.Error as error:
        raise SinkError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error


def identifier(name: str, suffix: str = "") -> sql.Identifier:
    """Return a table's name, with its schema where there is one."""
    *schema, table = name.split(".")
    return sql.Identifier(*schema, table + suffix)
