"""The connection to PostgreSQL, from a file, so that no password is in arguments or environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cloud.errors import SinkError, StopError
from contract.files import PrivateFileError, read_private

CONNECT_SECONDS_MAX = 30
_ENCODING = "UTF8"


def read_connection(file: Path) -> str:
    """Return libpq's connection string from a file that only its owner can read; raise StopError for other files.

    The password may be there, or where libpq finds it: `passfile=…`, ~/.pgpass, `service=…`.
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
    """Open a connection to a database in UTF8; raise SinkError for every error of psycopg within the context."""
    try:
        with psycopg.connect(connection, autocommit=autocommit, client_encoding=_ENCODING) as opened:
            found = opened.info.parameter_status("server_encoding")
            if found != _ENCODING:
                raise StopError(
                    f"database {opened.info.dbname}: its encoding is {found}, and events may have any character. Use "
                    f"a database that is created by: CREATE DATABASE oncegate ENCODING '{_ENCODING}' TEMPLATE template0"
                )
            yield opened
    except psycopg.Error as error:
        raise SinkError(f"PostgreSQL: {str(error).strip() or type(error).__name__}") from error


@contextmanager
def durable_transaction(connection: psycopg.Connection) -> Iterator[None]:
    """Begin a transaction whose commit waits for the disk, whatever the server's default: its events are receipted.

    The setting is the transaction's, since a pooler may pass the next transaction to another connection of the server.
    """
    with connection.transaction():
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
        )
        yield


def identifier(name: str, suffix: str = "") -> sql.Identifier:
    """Return the identifier of a table, with its schema where given, and a suffix."""
    *schema, table = name.split(".")
    return sql.Identifier(*schema, table + suffix)
