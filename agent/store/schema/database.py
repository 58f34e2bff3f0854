"""The SQLite file: how it is opened, and how its schema moves forward."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from agent.store import layout
from agent.store.errors import DamagedStoreError, StoreError
from agent.store.files import use_mark
from agent.store.layout import PAGE_BYTES

BREAKING_STEP = 0
"""The latest step that does more than add tables, indices and facts: a release without it refuses the store."""
_APPLICATION = 0x4F67_0000
"""In the file's header with the breaking step and the version as its last bytes.

So a damaged version is not mistaken for a newer release's."""
_BUSY_MS = 5_000
_INCREMENTAL = 2
_CACHE_KILOBYTES = 512
"""Of pages that a connection keeps, instead of 2,000: the store appends, and reads what it has appended once."""


class Reads(Protocol):
    """A connection of the service, or the database of a reading command."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> sqlite3.Cursor:
        """Run one statement that only reads."""


Connect = Callable[[Path], sqlite3.Connection]
"""Opens the writing connection; tests pass one that fails."""
GetConnection = Callable[[], sqlite3.Connection]
"""Returns the writing connection, its files verified."""


class StoreConnection(sqlite3.Connection):
    """Raise DatabaseError for a damaged schema, even if SQLite's message cannot be decoded."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        try:
            return super().execute(sql, parameters)
        except UnicodeDecodeError as undecodable:
            error = sqlite3.DatabaseError(undecodable.object.decode(errors="backslashreplace"))
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
            raise error from None


def open_for_service(path: Path, factory: type[sqlite3.Connection] = StoreConnection) -> sqlite3.Connection:
    """Open the one connection that writes; create the file where there is none."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=factory)
    try:
        prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Configure the writing connection, and bring the schema forward.

    With synchronous=FULL each COMMIT waits for the flush of the write-ahead log: it survives a power cut.
    """
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != _INCREMENTAL:  # setting it again would write
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreError(f"{path}: SQLite cannot use a write-ahead log here (journal mode is {mode})")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA mmap_size = 0")
    # Debian's SQLite overwrites deleted content, which would write a purged event again (decision 15).
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # SQLite would do that within COMMIT (decision 47)
    connection.execute(f"PRAGMA journal_size_limit = {layout.LOG_BYTES_KEPT}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
    migrate(connection, path)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a second connection that can only read, beside the running service or without it."""
    if use_mark.lacks_log(path):  # SQLite would make an empty one, and hide the loss (decision 49)
        raise StoreError(f"{path}: its write-ahead log is missing; `oncegate run` declares the lost events")
    connection = open_as_it_is(path)
    try:
        version, application = _version(connection)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KILOBYTES}")
        check_version(path, version, application)
    except (sqlite3.DatabaseError, DamagedStoreError):
        return connection  # the next read raises, or `verify` reports it
    except StoreError:
        connection.close()
        raise
    if version < len(migrations()):
        connection.close()
        raise StoreError(f"{path}: schema {version} is of an earlier release; `oncegate run` brings it forward")
    return connection


def open_as_it_is(path: Path) -> sqlite3.Connection:
    """Open a connection that can only read, for any schema, and however damaged the file is."""
    if use_mark.lacks_file(path):
        raise StoreError(f"{path}: missing, though its log or the mark of its use is there; `oncegate run` salvages it")
    if not path.exists():
        raise StoreError(f"{path}: there is no store yet; the agent makes it when it first runs")
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=StoreConnection,
    )
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    connection.execute("PRAGMA query_only = 1")
    return connection


@contextmanager
def snapshot(connection: Reads) -> Iterator[None]:
    """Hold a snapshot of the store within the block, which has to be short.

    While it is held, the service cannot restart its log: the block must not wait for the consumer of what it reads
    (decision 33).
    """
    connection.execute("BEGIN")
    try:
        yield
    finally:
        with suppress(sqlite3.OperationalError):  # an error within may have ended it
            connection.execute("ROLLBACK")


def in_use(path: Path) -> bool:
    """Whether an agent serves this store now: it holds the lock beside the file."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def used_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes of the pages in use; free pages are space for new events."""
    size: int = connection.execute(
        "SELECT (page_count - freelist_count) * page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()[0]
    return size


def free_pages(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many pages of the file are free, and how many it has."""
    free: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return free, pages


def shrink(connection: sqlite3.Connection, pages: int) -> None:
    """Release some free pages to the file system, which gets them once the log is written back."""
    for _ in range(pages):  # one by one, since Python takes a single step of a statement that has no columns
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()


def write_back(connection: sqlite3.Connection) -> None:
    """Write the log back into the file as far as no reader holds it."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def empty_log(connection: sqlite3.Connection, *, wait_ms: int = _BUSY_MS) -> bool:
    """Write all of the log back and cut it; return False if a reader still holds it after the wait."""
    connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
    try:
        busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
    return not busy


def disk_bytes(path: Path) -> int:
    """Return the size of the file and of its write-ahead log."""
    return sum(file.stat().st_size for file in (path, Path(f"{path}-wal")) if file.exists())


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema forward, one transaction for each step; a newer one that only adds to ours stays as it is."""
    version, application = _version(connection)
    check_version(path, version, application)
    for number, statements in enumerate(migrations()[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{statements}\nPRAGMA user_version = {number};\n"
            f"PRAGMA application_id = {_APPLICATION + (min(BREAKING_STEP, number) << 8) + number};\nCOMMIT;"
        )


def check_version(path: Path, version: int, application: int) -> None:
    """Check both numbers of a header.

    Raise StoreError where only a newer release may open the store, DamagedStoreError where they do not fit each other.
    """
    breaking = breaking_step(version, application)
    if breaking is None:
        raise DamagedStoreError(f"{path}: schema {version} does not fit application id {application:#x}")
    if breaking > (supported := len(migrations())):
        raise StoreError(
            f"{path}: schema {version} is of a newer release (this one supports {supported}); install that one"
        )


def breaking_step(version: int, application: int) -> int | None:
    """Return the latest breaking step as a header names it; None where no release has written both numbers."""
    breaking, told = divmod(application - _APPLICATION, 1 << 8) if application else (0, 0)
    return breaking if told == version and 0 <= breaking <= version else None


def _version(connection: sqlite3.Connection) -> tuple[int, int]:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    return version, application


def migrations() -> list[str]:
    """Return the SQL of each step from an empty file to this release's schema.

    A released step never changes; one that does more than add raises BREAKING_STEP, one release after what it needs.
    """
    folder = files("agent.store.schema").joinpath("migrations")
    steps = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [step.read_text() for step in steps]
