"""The files that the writing connection has open: looked at around each commit, since others can take them away."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from agent.store.errors import DamagedStoreError, StoreError
from agent.store.files.sqlite_pages import is_log_header, read_piece
from agent.store.layout import LOG_BYTES_KEPT, LOG_FRAME_BYTES, LOG_HEADER_BYTES

_FRAME_HEAD_BYTES = 24
_SALTS = slice(16, 24)
"""In the log's header; a frame counts only with the same ones, at `_FRAME_SALTS` in its head."""
_FRAME_SALTS = slice(8, 16)
_FILE_PAGES = slice(4, 8)
"""In a frame's head; 0 but in the last frame of a transaction."""
_FORM = slice(0, 12)
"""In the log's header: what is the same in all headers of one store."""
_ROUNDS_MAX = 1 << 10
"""More than the log begins anew between two looks at it."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _State:
    """The log as it was last found to be right."""

    header: bytes = b""
    """Empty where it is not complete: SQLite has written nothing yet, or has emptied the log."""
    size: int = 0


class LogFile:
    """The log of the one connection that writes; runs on the writer's thread alone.

    Its descriptor outlives a connection that an error has closed, so that the next one is held against it.
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
        """The log's round, as the first salt in its header, at the last look; None where it is empty."""
        return _first_salt(self._state.header) if self._state.header else None

    def open(self) -> None:
        """Look at the files that a connection has just opened.

        Raise DamagedStoreError where they are not those of the connection before: SQLite would take what it finds.
        """
        self._is_flushed = False
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR)
            self._origins = self._database.stat(), os.fstat(self._file)
            self._state = self._look()
            return
        state = self._look_in_place()
        if state.header == self._state.header:
            self._refuse_shorter(state)
        elif not self._may_follow_a_failure(state.header):
            raise self._overwritten()

    def flush(self) -> None:
        """Bring the latest commit to the medium, once for each connection, before anybody relies on it.

        A process that is killed between the last write of a COMMIT and its flush leaves a commit that SQLite reads
        from the page cache. Where a flush has failed the kernel may hold such pages for clean, so they are written
        once more. What came before that commit was flushed by its own (decision 46).
        """
        if self._is_flushed:
            return
        assert self._file is not None
        at, end = self._latest_commit(self._file)
        while piece := os.pread(self._file, min(_CHUNK_BYTES, end - at), at):
            at += os.pwrite(self._file, piece, at)
        os.fsync(self._file)
        _sync_folder(self._path.parent)
        self._is_flushed = True

    def cut(self, connection: sqlite3.Connection) -> None:
        """Cut off what stands behind the last commit, on the medium, too; waits for no reader.

        A transaction that fails leaves its frames there. The next one, if smaller, would overwrite only their
        beginning, and what follows could be taken for newer pages (decision 29).
        """
        assert self._file is not None
        header = self._look_in_place().header
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
        self._state = self._look()

    def has_changed(self) -> bool:
        """Whether the log is not as the last commit left it: emptied in order, or taken away by others.

        Raise DamagedStoreError where the log or the store's file is no longer the one that is open.
        """
        state = self._look_in_place()
        return state.header != self._state.header or state.size < self._state.size

    def check(self, *, written: bool) -> None:
        """Raise DamagedStoreError where the files that a transaction was written to are no longer the store's.

        SQLite does not look: what it commits to a log that was removed or truncated is gone at the next start.
        """
        state = self._look_in_place()
        if written and not is_log_header(state.header):
            raise self._overwritten()
        if state.header == self._state.header:
            self._refuse_shorter(state)
        elif not state.header:
            return  # emptied since the last commit, and nothing written: the next transaction asks SQLite
        elif not _follows(self._state.header, state.header):
            raise self._overwritten()
        self._state = state

    def is_long(self) -> bool:
        """Whether the log has grown to its bound: a frame of this round stands at the end of what is kept of it."""
        assert self._file is not None
        last = (LOG_BYTES_KEPT - LOG_HEADER_BYTES) // LOG_FRAME_BYTES - 1
        at = LOG_HEADER_BYTES + last * LOG_FRAME_BYTES
        if self._state.size <= at:
            return False
        return os.pread(self._file, _FRAME_HEAD_BYTES, at)[_FRAME_SALTS] == self._state.header[_SALTS]

    def put_back(self) -> None:
        """Write the log anew where it was, if it was removed or replaced; what stood in it can be read only here."""
        if self._file is None or self._size_in_place() is not None:
            return
        state = self._look()
        if state.size < self._state.size or not _follows(self._state.header, state.header):
            return
        new = Path(f"{self._database}.salvaging-wal")  # which the next opening removes, where this ends halfway
        with new.open("wb") as file:
            at = 0
            while piece := os.pread(self._file, _CHUNK_BYTES, at):
                at += file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
        _sync_folder(self._path.parent)

    def close_connection(self, connection: sqlite3.Connection) -> bool:
        """Close a connection; True where it was the last one of all: SQLite then writes the log back and removes it."""
        was_in_place = self._file is not None and self._size_in_place() is not None
        connection.close()
        is_removed = was_in_place and not self._path.exists()
        if is_removed:
            self.close()
        return is_removed

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
        self._file, self._origins, self._state = None, None, _State()

    def _look(self) -> _State:
        assert self._file is not None
        return _State(self._header(), os.fstat(self._file).st_size)

    def _look_in_place(self) -> _State:
        """Look at the log; raise DamagedStoreError where it, or the store's file, is no longer the one that is open.

        An error of the look itself counts as damage, too: after a commit the events are in the file, and not in memory.
        """
        try:
            size = self._size_in_place()
            header = self._header()
        except OSError as error:
            raise DamagedStoreError(f"{self._path}: cannot be looked at: {error}") from error
        if size is None:
            raise DamagedStoreError(f"{self._database}: removed or replaced, or its log, while the store was open")
        return _State(header, size)

    def _header(self) -> bytes:
        assert self._file is not None
        header = os.pread(self._file, LOG_HEADER_BYTES, 0)
        return header if len(header) == LOG_HEADER_BYTES else b""

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
        salts = self._look().header[_SALTS]
        begins, ends, at = 0, 0, LOG_HEADER_BYTES
        while salts and (head := os.pread(file, _FRAME_HEAD_BYTES, at))[_FRAME_SALTS] == salts:
            at += LOG_FRAME_BYTES
            if any(head[_FILE_PAGES]):
                begins, ends = ends, at
        return begins, at if salts else 0

    def _may_follow_a_failure(self, header: bytes) -> bool:
        """Whether a transaction that failed can have left this header: also one of which only a part is new.

        SQLite begins its log anew only once all is in the file, so then nothing is lost with the earlier one.
        """
        before = self._state.header
        if is_log_header(header):
            return _follows(before, header)
        return header[_FORM] == before[_FORM]

    def _refuse_shorter(self, state: _State) -> None:
        if state.size < self._state.size:
            raise self._shortened()

    def _shortened(self) -> DamagedStoreError:
        return DamagedStoreError(f"{self._path}: truncated while the store was open")

    def _overwritten(self) -> DamagedStoreError:
        return DamagedStoreError(f"{self._path}: truncated or overwritten while the store was open")


def is_of_earlier_round(path: Path, log_round: int | None) -> bool:
    """Whether a store's log is an older copy of itself, or another one: it does not follow the round that is given.

    False where nothing tells: without a round, without a log, or where its header is not whole.
    """
    log = Path(f"{path}-wal")
    if log_round is None or not log.exists():
        return False
    with log.open("rb") as file:
        header = read_piece(file.fileno(), 0, LOG_HEADER_BYTES)
    return is_log_header(header) and (_first_salt(header) - log_round) % (1 << 32) > _ROUNDS_MAX


def _follows(before: bytes, header: bytes) -> bool:
    """Whether this is the header of the same round of the log, or of a later one, or the first.

    SQLite adds one to the first salt whenever it begins the log anew: an older copy has a lower one.
    Another log has any.
    """
    if not is_log_header(header):
        return False
    return not before or (_first_salt(header) - _first_salt(before)) % (1 << 32) <= _ROUNDS_MAX


def _first_salt(header: bytes) -> int:
    return int.from_bytes(header[_SALTS][:4], "big")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
