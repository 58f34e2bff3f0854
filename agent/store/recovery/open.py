"""Opening a store whatever state its files are in: as it is where it is whole, else after a salvage."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from agent.clock import Clock
from agent.store.errors import DamagedStoreError, NoRoomError, StoreError, is_damage
from agent.store.files import swap, use_mark
from agent.store.files.use_mark import Noted, UseMark
from agent.store.files.write_ahead_log import is_of_earlier_round
from agent.store.fingerprints.index import DEFAULT_BOUNDS, IndexBounds
from agent.store.fingerprints.transient import Spans
from agent.store.memory import Memory, load
from agent.store.recovery.inspect import inspect_files
from agent.store.recovery.salvage import salvage
from agent.store.schema import database, disk_space, gaps, tables
from agent.store.schema.database import Connect
from agent.store.schema.gaps import Gap

log = logging.getLogger(__name__)


OPENING_BYTES = 1 << 20
"""Enough to open a store: the index of its log, and what is declared at once."""
LOG_GONE = "the write-ahead log was gone"
END_GONE = "the last committed events were gone"


def open_store(
    path: Path, connect: Connect, clock: Clock, spans: Spans, bounds: IndexBounds = DEFAULT_BOUNDS
) -> tuple[sqlite3.Connection, Memory]:
    """Open a store for service; damage never keeps it from opening, and nothing is lost by it silently.

    Raise NoRoomError where the file system is too full for that; all files are then as they were.
    """
    swap.resume(path)
    reason = swap.suspicion(path)
    try:
        if not reason:
            try:
                return _open(path, connect, clock, spans, bounds)
            except (sqlite3.Error, StoreError) as error:
                if not is_damage(error, opening=True):
                    raise
                reason = str(error)
        _replace(path, clock, reason)
        try:
            return _open(path, connect, clock, spans, bounds)
        except DamagedStoreError as error:
            raise StoreError(f"{path}: damaged again at once, so the disk cannot be trusted: {error}") from error
    except (sqlite3.Error, OSError) as error:
        if disk_space.lacks_room(error, path):
            raise NoRoomError(
                f"{path}: cannot be opened ({error})", OPENING_BYTES, disk_space.free_bytes(path)
            ) from error
        raise


def _open(
    path: Path, connect: Connect, clock: Clock, spans: Spans, bounds: IndexBounds
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
        memory = load(connection, clock, spans, bounds)
        with closing(UseMark(path, clock.boot())) as mark:
            mark.note(end, None)  # an empty log begins a round of any number
    except BaseException:
        connection.close()
        raise
    return connection, memory


def _loss(noted: Noted | None, end: int, boot: str, *, lacks_log: bool) -> str:
    """Return why events behind the last position are missing; empty where none are, as far as the mark tells.

    A position is noted after its commit: where the store ends before it, the commit is lost, whatever is left of the
    log. That it does not tells only in the same boot that nothing is lost: the latest notes may be, too.
    """
    if lacks_log:
        has_all = noted is not None and noted.boot == boot and noted.end <= end
        return "" if has_all else LOG_GONE
    return END_GONE if noted is not None and end < noted.end else ""


def _has_older_log(path: Path) -> bool:
    """Whether the log that lies beside the store is older than the last commit that its mark notes."""
    noted = use_mark.noted(path)
    return noted is not None and is_of_earlier_round(path, noted.log_round)


def _replace(path: Path, clock: Clock, reason: str) -> None:
    time = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    log.error("store=damaged reason=%r", reason)
    bytes_needed = database.bytes_on_disk(path)
    try:
        new = swap.prepare(path)
        if _has_older_log(path):
            swap.set_log_aside(path, time)
        found = salvage(path, new, reason)
        swap.finish(path, new, time)
    except (sqlite3.Error, OSError) as error:
        full = disk_space.lacks_room(error, path)  # asked while the new file still takes the room
        swap.remove_leftovers(path)
        if full:
            what = f"{path}: damaged ({reason}), and left as it is, since a salvage makes a second file"
            raise NoRoomError(what, bytes_needed, disk_space.free_bytes(path)) from error
        raise StoreError(f"{path}: damaged ({reason}), and the salvage failed: {error}") from error
    log.warning("store=salvaged events=%d lost=%d damaged=%s.damaged-%s", found.events, found.lost, path, time)
