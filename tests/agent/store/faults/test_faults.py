"""A disk that fails at each of its operations in turn: only stored events are acked, and the store recovers."""

import errno
import itertools
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from agent.config.settings import StoreSettings
from agent.store import layout
from agent.store.errors import StoreError
from agent.store.files import swap
from agent.store.fingerprints.index import IndexBounds
from agent.store.fingerprints.transient import Lifetimes
from agent.store.layout import FILE_NAME, LOG_FRAME_BYTES, LOG_HEADER_BYTES
from agent.store.memory import load
from agent.store.port import Outcome, Submission
from agent.store.read.events import Epochs, read_packed
from agent.store.recovery.open import open_store
from agent.store.recovery.verify import verify
from agent.store.schema import database
from agent.store.transports import Transports
from agent.store.write.committer import Answers, Committer
from agent.store.write.maintenance import Maintenance
from agent.store.write.write_path import WritePath
from contract.event import Event, Label
from tests.agent.store.stores import (
    GATEWAY,
    HandClock,
    batch,
    candidate,
    position_of,
)

_names = itertools.count()
OPERATIONS = ("xOpen", "xWrite", "xSync", "xTruncate", "xFileSize", "xClose")
ERRORS = {
    errno.ENOSPC: (apsw.FullError, sqlite3.SQLITE_FULL),
    errno.EIO: (apsw.IOError, sqlite3.SQLITE_IOERR),
    errno.EROFS: (apsw.ReadOnlyError, sqlite3.SQLITE_READONLY),
}
LOG_BYTES = LOG_HEADER_BYTES + 6 * LOG_FRAME_BYTES
"""Small enough that the log is often written back."""
LASTING = 6
"""How many operations fail in a row."""


@dataclass(slots=True)
class Disk:
    """Counts operations; from a given one on, some fail."""

    operation: str
    error: int
    fails_from: int = 1 << 30
    seen: int = 0
    failed: int = 0
    vfs: list[object] = field(default_factory=list)

    def touch(self, operation: str) -> None:
        if operation == self.operation:
            self.seen += 1
            if self.fails_from <= self.seen < self.fails_from + LASTING:
                self.failed += 1
                raise ERRORS[self.error][0]("injected")

    def connect(self, path: Path) -> sqlite3.Connection:
        system = _System(self)
        self.vfs.append(system)
        try:
            connection = cast("sqlite3.Connection", _Connection(str(path), vfs=system.name))
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.prepare(connection, path)
        except apsw.Error as error:
            raise _translated(error) from error
        return connection


class _Connection(apsw.Connection):
    """Implements the part of sqlite3 that the store's code uses, including errors."""

    def execute(self, *arguments: Any, **named: Any) -> apsw.Cursor:
        try:
            return super().execute(*arguments, **named)
        except apsw.Error as error:
            raise _translated(error) from error

    def executescript(self, sql: str) -> None:
        self.execute(sql)

    @property
    def total_changes(self) -> int:  # type: ignore[override]
        return super().total_changes()


def _translated(error: apsw.Error) -> sqlite3.OperationalError:
    told = sqlite3.OperationalError(str(error))
    told.sqlite_errorcode = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
    return told


class _System(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self.name = f"failing-{next(_names)}"
        self._disk = disk
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self._disk.touch("xOpen")
        return _File(name, flags, self._disk)


class _File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: Disk) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.touch("xWrite")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.touch("xSync")
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.touch("xTruncate")
        super().xTruncate(newsize)

    def xFileSize(self) -> int:  # noqa: N802
        self._disk.touch("xFileSize")
        return super().xFileSize()

    def xClose(self) -> None:  # noqa: N802
        super().xClose()
        self._disk.touch("xClose")


class Work:
    """The real committer and maintenance; which events they acked or refused, and whether they reported damage."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self.path = folder / FILE_NAME
        self._disk = disk
        self._clock = HandClock()
        self.acked: dict[int, bytes] = {}
        self.refused: set[int] = set()
        self.damage: list[BaseException] = []

    def run(self, commits: int) -> None:
        """Open, commit, forward, seal, purge, close; one submission after the other."""
        connection = self._disk.connect(self.path)
        memory = load(connection, self._clock, Lifetimes(), IndexBounds(segment_events=32))
        writes = WritePath.build(
            self.path, self._disk.connect, StoreSettings(), self._clock, memory, Transports(), self.damage.append
        )
        writes.connection.start(connection)
        committer = Committer(writes, GATEWAY, self._clock, memory, self._announce)
        maintenance = Maintenance(writes, memory, self._clock, 10**9, 7 * 86_400, committer.declare)
        number = 0
        for _ in range(commits):
            events = tuple(Event("d", id=number + place, data={"n": number + place}) for place in range(1, 5))
            number += 4
            candidates = tuple(candidate(self._clock, event) for event in events)
            committer.commit([Submission(candidates, (), None, lambda _: None)])
            self._clock.pass_seconds(3)
            maintenance.run_due()
            if (new := memory.progress.next_new(0)) is not None:
                memory.progress.mark_forwarded(batch(*new))
            if self.damage:
                return  # the service would close this store, and the next opening would salvage it
        writes.connection.close()

    def _announce(self, answers: Answers) -> None:
        for submission, outcome in answers:
            numbers = [event.event.id for event in submission.candidates]
            self._note(cast("list[int]", numbers), outcome)

    def _note(self, numbers: list[int], outcome: Outcome) -> None:
        if outcome.refusal:
            self.refused.update(numbers)
        else:
            self.acked.update(zip(numbers, outcome.fingerprints, strict=True))


def check(work: Work) -> None:
    """Open the files as the service does, on a working disk: each acked event is there, once."""
    connection, memory = open_store(work.path, database.open_for_service, HandClock(boot_name="boot-2"), Lifetimes())
    with closing(connection):
        events = list(read_packed(connection, 1, 1 << 40))
        epochs = Epochs.load(connection)
        labels: list[Label] = [epochs.label(event.position) for event in events]
        found = [event.fingerprint for event in events]
        for number, fingerprint in work.acked.items():
            assert found.count(fingerprint) == 1, f"event {number} is acked and there {found.count(fingerprint)} times"
            assert position_of(memory, connection, fingerprint) is not None
        assert not verify(work.path).findings
    assert len(set(labels)) == len(labels)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL):
        yield


@pytest.mark.guarantee(1)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a failing close is not reported
@pytest.mark.parametrize("error", ERRORS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disk_that_fails_at_any_operation_costs_no_acked_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, error: int
) -> None:
    commits = 24
    monkeypatch.setattr(layout, "LOG_BYTES_KEPT", LOG_BYTES)
    whole = Disk(operation, error)
    (tmp_path / "whole").mkdir()
    work = Work(tmp_path / "whole", whole)
    work.run(commits)
    assert len(work.acked) == 4 * commits
    assert not work.refused
    check(work)
    assert whole.seen, f"{operation} was never called"
    step = max(1, whole.seen // 12)
    failed = 0
    for fails_from in range(1, whole.seen + 1, step):
        folder = tmp_path / str(fails_from)
        folder.mkdir()
        disk = Disk(operation, error, fails_from)
        work = Work(folder, disk)
        try:
            work.run(commits)
        except (sqlite3.Error, StoreError, apsw.Error):
            assert not work.acked or disk.failed  # the opening or the closing failed with an error
        disk.fails_from = 1 << 30
        failed += disk.failed
        if work.path.exists() and work.path.stat().st_size and not swap.suspicion(work.path):
            check(work)
        else:
            assert not work.acked
    assert failed
