"""The write-ahead log of the writing connection: verified around each commit, since others can remove or replace it."""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from agent.config.files import sync_folder
from agent.store import layout
from agent.store.errors import DamagedStoreError, StoreError
from agent.store.files.sqlite_pages import LogFrames, is_log_header, read_from
from agent.store.layout import LOG_FRAME_BYTES, LOG_HEADER_BYTES

_FRAME_HEAD_BYTES = 24
_SALTS = slice(16, 24)
"""In the log's header; a frame counts only with the same ones, at `_FRAME_SALTS` in its head."""
_FRAME_SALTS = slice(8, 16)
_FILE_PAGES = slice(4, 8)
"""In a frame's head; 0 but in the last frame of a transaction."""
_FORM = slice(0, 12)
"""In the log's header: the part that is equal in all headers of one store."""
_ROUNDS_MAX = 1 << 10
"""More often than the log is restarted between two checks."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _State:
    """The log as it was when last verified."""

    header: bytes = b""
    """Empty where it is not complete: SQLite has written nothing yet, or has emptied the log."""
    size: int = 0


class WriteAheadLog:
    """The log of the writing connection; runs on the writer's thread alone.

    Its descriptor outlives a connection that an error has closed, so that the next one is compared with it.
    """

    def __init__(self, path: Path) -> None:
        self._database = path
        self._path = Path(f"{path}-wal")
        self._file: int | None = None
        self._origins: tuple[os.stat_result, os.stat_result] | None = None
        """Which files the connection has opened: the store's own, and the log."""
        self._state = _State()
        self._is_flushed = False

    @property
    def round(self) -> int | None:
        """The log's round, as the first salt in its header, when last verified; None where it is empty."""
        return int.from_bytes(self._state.header[_SALTS][:4], "big") if self._state.header else None

    def open(self) -> None:
        """Verify the files that a connection has just opened.

        Raise DamagedStoreError where they are not those of the connection before, which SQLite would not notice.
        """
        self._is_flushed = False
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR)
            self._origins = self._database.stat(), os.fstat(self._file)
            self._state = self._read_state()
            return
        state = self._verified_state()
        if state.header == self._state.header:
            if state.size < self._state.size:
                raise self._shortened()
        elif not self._may_follow_a_failure(state.header):
            raise self._overwritten()

    def flush(self) -> None:
        """Flush the latest commit to the medium, once for each connection, before it is relied on.

        A process that is killed between the last write of a COMMIT and its flush leaves a commit that SQLite reads
        from the page cache. Where a flush has failed, the kernel may consider such pages clean, so they are
        written once more. Every earlier commit was flushed by its own transaction (decision 46).
        """
        if self._is_flushed:
            return
        assert self._file is not None
        at, end = self._latest_commit(self._file)
        while piece := os.pread(self._file, min(_CHUNK_BYTES, end - at), at):
            at += os.pwrite(self._file, piece, at)
        os.fsync(self._file)
        sync_folder(self._path.parent)
        self._is_flushed = True

    def cut(self, connection: sqlite3.Connection) -> None:
        """Cut off the frames behind the last commit, on the medium, too; wait for no reader.

        A failed transaction leaves its frames there. A smaller one after it would overwrite only their beginning, and
        the rest could be mistaken for newer pages (decision 29).
        """
        assert self._file is not None
        header = self._verified_state().header
        if header and header != self._state.header and not self._may_follow_a_failure(header):
            raise self._overwritten()  # before SQLite copies it into the file
        try:
            frames: int = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ:
                raise self._shortened() from error
            raise
        if frames < 0:
            raise StoreError(f"{self._path}: another program writes to the store")
        size = LOG_HEADER_BYTES + frames * LOG_FRAME_BYTES if frames else 0
        found = os.fstat(self._file).st_size
        if found < size:
            raise self._shortened()
        if found > size:
            os.ftruncate(self._file, size)
        os.fsync(self._file)
        self._state = self._read_state()

    def has_rest(self) -> bool:
        """Whether frames of its round lie behind the last commit; reads all of it."""
        return bool(LogFrames(self._database).behind)

    def has_changed(self) -> bool:
        """Whether the log is not as the last commit left it: emptied in order, or replaced by others.

        Raise DamagedStoreError where the log or the store's file is no longer the one that is open.
        """
        state = self._verified_state()
        return state.header != self._state.header or state.size < self._state.size

    def check(self, *, written: bool) -> None:
        """Raise DamagedStoreError where the files that a transaction was written to are no longer the store's.

        SQLite does not verify this: a commit to a log that was removed or truncated is lost at the next start.
        """
        state = self._verified_state()
        if written and not is_log_header(state.header):
            raise self._overwritten()
        if state.header == self._state.header:
            if state.size < self._state.size:
                raise self._shortened()
        elif not state.header:
            return  # emptied since the last commit, and nothing written: the next transaction queries SQLite
        elif not _follows(self._state.header, state.header):
            raise self._overwritten()
        self._state = state

    def is_long(self) -> bool:
        """Whether the log has grown to its bound: the last frame that fits is from the present round."""
        assert self._file is not None
        last = (layout.LOG_BYTES_KEPT - LOG_HEADER_BYTES) // LOG_FRAME_BYTES - 1
        at = LOG_HEADER_BYTES + last * LOG_FRAME_BYTES
        if self._state.size <= at:
            return False
        return os.pread(self._file, _FRAME_HEAD_BYTES, at)[_FRAME_SALTS] == self._state.header[_SALTS]

    def put_back(self) -> None:
        """Write the log to its place again if it was removed or replaced: no other process can read its content."""
        if self._file is None or self._size_in_place() is not None:
            return
        state = self._read_state()
        if state.size < self._state.size or not _follows(self._state.header, state.header):
            return
        new = Path(f"{self._database}.salvaging-wal")  # the next opening removes it, where this ends halfway
        with new.open("wb") as file:
            at = 0
            while piece := os.pread(self._file, _CHUNK_BYTES, at):
                at += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        sync_folder(self._path.parent)

    def close_connection(self, connection: sqlite3.Connection) -> bool:
        """Close a connection; return True where it was the last one, so that SQLite has written the log back."""
        was_in_place = self._file is not None and self._size_in_place() is not None
        connection.close()
        is_removed = was_in_place and not self._path.exists()
        if is_removed:
            self.close()
        return is_removed

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._origins, self._state = None, None, _State()

    def _read_state(self) -> _State:
        assert self._file is not None
        header = os.pread(self._file, LOG_HEADER_BYTES, 0)
        return _State(header if len(header) == LOG_HEADER_BYTES else b"", os.fstat(self._file).st_size)

    def _verified_state(self) -> _State:
        """Return the state of the log.

        Raise DamagedStoreError where it, or the store's file, is no longer the one that is open. An error while reading
        counts as damage, too: after a commit the events are in the file, and not in memory.
        """
        assert self._file is not None
        try:
            size = self._size_in_place()
            header = os.pread(self._file, LOG_HEADER_BYTES, 0)
        except OSError as error:
            raise DamagedStoreError(f"{self._path}: cannot be read: {error}") from error
        if size is None:
            raise DamagedStoreError(f"{self._database}: removed or replaced, or its log, while the store was open")
        return _State(header if len(header) == LOG_HEADER_BYTES else b"", size)

    def _size_in_place(self) -> int | None:
        """Return the size of the log; None where it, or the store's file, is no longer the one that is open."""
        assert self._origins is not None
        try:
            found = self._database.stat(), self._path.stat()
        except FileNotFoundError:
            return None
        return found[1].st_size if all(map(os.path.samestat, found, self._origins)) else None

    def _latest_commit(self, file: int) -> tuple[int, int]:
        """Return where the latest commit begins, the header included if it is the first, and where its round ends."""
        salts = self._read_state().header[_SALTS]
        begins, ends, at = 0, 0, LOG_HEADER_BYTES
        while salts and (head := os.pread(file, _FRAME_HEAD_BYTES, at))[_FRAME_SALTS] == salts:
            at += LOG_FRAME_BYTES
            if any(head[_FILE_PAGES]):
                begins, ends = ends, at
        return begins, at if salts else 0

    def _may_follow_a_failure(self, header: bytes) -> bool:
        """Whether a failed transaction can have left this header, even if only a part of it is new.

        SQLite restarts its log only once all of it is in the file, so that nothing is lost with the earlier round.
        """
        before = self._state.header
        if is_log_header(header):
            return _follows(before, header)
        return header[_FORM] == before[_FORM]

    def _shortened(self) -> DamagedStoreError:
        return DamagedStoreError(f"{self._path}: truncated while the store was open")

    def _overwritten(self) -> DamagedStoreError:
        return DamagedStoreError(f"{self._path}: truncated or overwritten while the store was open")


def is_of_earlier_round(path: Path, log_round: int | None) -> bool:
    """Whether a store's log is an older copy or another log: one that does not follow the given round (decision 57).

    Return False without a round, without a log, or where its header is not whole.
    """
    log = Path(f"{path}-wal")
    if log_round is None or not log.exists():
        return False
    header = read_from(log, 0, LOG_HEADER_BYTES)
    return is_log_header(header) and (_first_salt(header) - log_round) % (1 << 32) > _ROUNDS_MAX


def _follows(before: bytes, header: bytes) -> bool:
    """Whether this is the header of the same round of the log, of a later one, or the first.

    SQLite adds one to the first salt whenever it restarts the log: an older copy has a lower salt, another log any.
    """
    if not is_log_header(header):
        return False
    return not before or (_first_salt(header) - _first_salt(before)) % (1 << 32) <= _ROUNDS_MAX


def _first_salt(header: bytes) -> int:
    return int.from_bytes(header[_SALTS][:4], "big")
