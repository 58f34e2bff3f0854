"""Opens a store in any state of its files: unchanged if it is intact, else after a salvage.

Before SQLite opens and changes the files, they are inspected for damage that it does not report: a wrong header, a cut
file, commits lost in the write-ahead log.
"""

import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agent.clock import Clock
from agent.config.settings import IdentitySettings
from agent.store.errors import DamagedStoreError, DiskFullError, StoreError, is_damage
from agent.store.files import swap, use_mark
from agent.store.files.sqlite_pages import HEADER_BYTES, LogFrames, newest_header, read_from
from agent.store.files.use_mark import LastCommit, UseMark
from agent.store.files.write_ahead_log import is_of_earlier_round
from agent.store.fingerprints.index import DEFAULT_BOUNDS, IndexBounds
from agent.store.layout import PAGE_BYTES
from agent.store.memory import Memory, load
from agent.store.recovery.salvage import salvage
from agent.store.schema import database, disk_space, gaps, tables
from agent.store.schema.database import Connect, breaking_step, check_version
from agent.store.schema.gaps import Gap

log = logging.getLogger(__name__)

OPENING_BYTES = 1 << 20
"""Enough space to open a store: for the index of its log, and the first declarations."""
LOG_GONE = "the write-ahead log was gone"
END_GONE = "the last committed events were gone"
_MAGIC = b"SQLite format 3\0"
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_ROOT_MAX = 64
"""The roots of all tables are among the first pages."""
_LOCK_PAGE = (1 << 30) // PAGE_BYTES + 1
"""Holds the bytes that SQLite locks, and is never written."""
_TORN_COMMITS_MAX = 1
"""A power cut tears the commit that was being written, and no earlier one: each waits for the flush of the one before.

The frames of a failed commit are cut off before the next one is written (write_ahead_log.py)."""


def open_store(
    path: Path, connect: Connect, clock: Clock, identity: IdentitySettings, bounds: IndexBounds = DEFAULT_BOUNDS
) -> tuple[sqlite3.Connection, Memory]:
    """Open a store for service; a damaged one is salvaged, and lost events are recorded as gaps.

    Raise DiskFullError where the file system is too full for that; all files are then unchanged.
    """
    if path.is_symlink():  # SQLite's log would be beside the target, and a salvage would replace the link
        raise StoreError(f"{path}: a symbolic link; move its folder, and set gateway.state_dir or link the folder")
    swap.resume(path)
    reason = swap.suspicion(path)
    try:
        if not reason:
            try:
                return _open(path, connect, clock, identity, bounds)
            except (sqlite3.Error, StoreError) as error:
                if not is_damage(error, opening=True):
                    raise
                reason = str(error)
        _replace(path, clock, reason)
        try:
            return _open(path, connect, clock, identity, bounds)
        except DamagedStoreError as error:
            raise StoreError(f"{path}: damaged again at once, so the disk cannot be trusted: {error}") from error
    except (sqlite3.Error, OSError) as error:
        if disk_space.is_full(error, path):
            raise DiskFullError(
                f"{path}: cannot be opened ({error})", OPENING_BYTES, disk_space.free_bytes(path)
            ) from error
        raise


def _open(
    path: Path, connect: Connect, clock: Clock, identity: IdentitySettings, bounds: IndexBounds
) -> tuple[sqlite3.Connection, Memory]:
    lacks_log = use_mark.lacks_log(path)
    if lacks_log:
        use_mark.note_lost_log(path)
    if _has_older_log(path):
        raise DamagedStoreError(f"{path}-wal: older than the last commit, or another store's")
    inspect_files(path)
    connection = connect(path)
    try:
        end = tables.last_position(connection)
        loss = _loss(use_mark.noted(path), end, clock.boot(), lacks_log=lacks_log)
        if loss:
            gaps.insert(connection, Gap(end + 1, end, loss))
            log.error("store=damaged reason=%r last_position=%d", f"{path}: {loss}", end)
        elif lacks_log:
            log.warning("store=log-gone effect=%r", "none: another program has written it back and removed it")
        memory = load(connection, clock, identity, bounds)
        with closing(UseMark(path, clock.boot())) as mark:
            mark.note(end, None)  # an empty log may begin any round
    except BaseException:
        connection.close()
        raise
    return connection, memory


def _loss(noted: LastCommit | None, end: int, boot: str, *, lacks_log: bool) -> str:
    """Return why events behind the last position are missing; empty where the mark of use shows none missing.

    A position is written to the mark after its commit: if the store ends before it, the commit is lost, whatever
    remains of the log (decision 57). If the log is missing, the mark proves that nothing is lost only in the same boot:
    otherwise its latest writes may be lost, too.
    """
    if lacks_log:
        has_all = noted is not None and noted.boot == boot and noted.end <= end
        return "" if has_all else LOG_GONE
    return END_GONE if noted is not None and end < noted.end else ""


def _has_older_log(path: Path) -> bool:
    """Whether the log beside the store is older than the last commit on its mark of use."""
    noted = use_mark.noted(path)
    return noted is not None and is_of_earlier_round(path, noted.log_round)


def _replace(path: Path, clock: Clock, reason: str) -> None:
    time = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    log.error("store=damaged reason=%r", reason)
    if (version := schema_version(path)) > len(database.migrations()):
        raise StoreError(
            f"{path}: damaged ({reason}), and its schema {version} is of a newer release, which alone salvages all of "
            "it: install that one"
        )
    needed_bytes = database.disk_bytes(path)
    try:
        new = swap.prepare(path)
        if _has_older_log(path):
            swap.move_log_away(path, time)
        events, lost = salvage(path, new, reason)
        swap.finish(path, new, time)
    except (sqlite3.Error, OSError) as error:
        full = disk_space.is_full(error, path)  # queried while the new file still takes its space
        swap.remove_leftovers(path)
        if full:
            what = f"{path}: damaged ({reason}), and left as it is, since a salvage makes a second file"
            raise DiskFullError(what, needed_bytes, disk_space.free_bytes(path)) from error
        raise StoreError(f"{path}: damaged ({reason}), and the salvage failed: {error}") from error
    log.warning("store=salvaged events=%d lost=%d damaged=%s.damaged-%s", events, lost, path, time)


def inspect_files(path: Path) -> None:
    """Raise DamagedStoreError if the files are damaged, StoreError if only a newer release may open them.

    Call it before SQLite opens and changes them.
    """
    if use_mark.lacks_file(path):
        raise DamagedStoreError(f"{path}: missing, though its log or the mark of its use is there")
    log = LogFrames(path)
    if path.exists() and not _is_being_created(path):
        header = read_from(path, 0, HEADER_BYTES)
        if not _is_header(header):
            raise DamagedStoreError(f"{path}: its header is not what SQLite writes")
        check_version(path, *_version(newest_header(path, log)))
        _inspect_length(path, header, log)
    if log.unreadable:
        raise DamagedStoreError(f"{log.path}: the disk cannot read all of it")
    if not log.whole:
        raise DamagedStoreError(f"{log.path}: its header is not what SQLite writes")
    if log.commits_behind_damage > _TORN_COMMITS_MAX:
        raise DamagedStoreError(f"{log.path}: damaged, with {log.commits_behind_damage} commits behind it")


def schema_version(path: Path) -> int:
    """Return the version of the store's schema; 0 where it cannot be read, or is damaged."""
    version, application = _version(newest_header(path, LogFrames(path)))
    return 0 if breaking_step(version, application) is None else version


def _version(header: bytes) -> tuple[int, int]:
    return int.from_bytes(header[60:64], "big"), int.from_bytes(header[68:72], "big")


def _inspect_length(path: Path, header: bytes, log: LogFrames) -> None:
    """Raise DamagedStoreError where a page is neither in the file nor in its log.

    The log may hold the file's last pages: a reader, or a full disk, keeps them from being written back.
    """
    pages = log.frames[-1].file_pages if log.frames else int.from_bytes(header[28:32], "big")
    logged = {frame.page for frame in log.frames}
    behind_the_end = range(path.stat().st_size // PAGE_BYTES + 1, pages + 1)
    if len(behind_the_end) > len(logged) + 1 or any(
        page not in logged for page in behind_the_end if page != _LOCK_PAGE
    ):
        raise DamagedStoreError(f"{path}: cut off, {pages} pages expected")


def _is_being_created(path: Path) -> bool:
    """Whether the file's creation was interrupted: nothing else has a rollback journal.

    SQLite completes the journal's header before it writes to the file.
    """
    journal = path.with_name(f"{path.name}-journal")
    if not journal.exists():
        return False
    return path.stat().st_size == 0 or read_from(journal, 0, len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC


def _is_header(header: bytes) -> bool:
    """Whether SQLite writes such a header for the store (https://www.sqlite.org/fileformat2.html section 1.3)."""
    return (
        len(header) == HEADER_BYTES
        and header.startswith(_MAGIC)
        and int.from_bytes(header[16:18], "big") == PAGE_BYTES
        and header[18] == header[19]
        and header[18] in (1, 2)
        and header[20:24] == b"\0\x40\x20\x20"
        and int.from_bytes(header[44:48], "big") in (0, 4)
        and int.from_bytes(header[52:56], "big") <= _ROOT_MAX
        and int.from_bytes(header[56:60], "big") in (0, 1)
        and int.from_bytes(header[64:68], "big") in (0, 1)
        and header[72:92] == bytes(20)
    )
