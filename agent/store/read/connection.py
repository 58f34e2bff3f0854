"""The reading commands' access to the store: sqlite-utils on a second connection that cannot write.

The service imports this only when its status page is searched, so that its start does not pay for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlite_utils import Database

from agent.store.errors import naming
from agent.store.schema import database


@contextmanager
def read_only(path: Path) -> Iterator[Database]:
    """Open the store, also while the service writes; raise StoreError where there is none.

    `query` and `rows_where` return rows as dictionaries, `execute` as the store's own functions read them.
    """
    with naming(path), closing(database.open_for_reading(path)) as connection:
        yield open_database(connection)


def open_database(connection: sqlite3.Connection) -> Database:
    """Return a connection as a database of sqlite-utils, which changes nothing on it."""
    return Database(connection, recursive_triggers=False, execute_plugins=False)
