"""The card of a gateway: real SQLite on files in memory, where each write and flush is a switch point.

The stores of all lanes are on one card, and a power cut takes from all of them at one moment.
"""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from agent.store.errors import StoreError
from agent.store.files.folders import store_folders
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from tests.agent.store.faults.power_cuts import Disk
from tests.agent.store.faults.recording import Recording, Step, Truncate, Write, connect_for_reading
from tests.schedules.scheduler import Scheduler

MARK = f"{FILE_NAME}.open"
"""The mark of use, which is never flushed."""
PASSING = ("-shm", ".lock")
"""What no crash leaves: the index of the log, which SQLite makes anew, and the lock, which the kernel releases."""


class _Recorded(Recording):
    """A recording of a card that knows at each step what a power cut would leave."""

    def __init__(self, folder: Path, scheduler: Scheduler, disk: Disk) -> None:
        super().__init__(folder / FILE_NAME)
        self._folder = folder
        self._scheduler = scheduler
        self.disk = disk

    def note(self, step: Step) -> None:
        self.disk.take(step)
        place = f" {step.offset}" if isinstance(step, Write) else f" {step.size}" if isinstance(step, Truncate) else ""
        self._scheduler.pause(f"{type(step).__name__} {getattr(step, 'file', '')}{place}")

    def suffix(self, name: str) -> str | None:
        """Return the path of a store's file on the card; None for other files, and for folders."""
        path = Path(name)
        is_of_store = path.name.startswith(FILE_NAME) and path.is_relative_to(self._folder)
        return str(path.relative_to(self._folder)) if is_of_store else None


class Card:
    """The files of one gateway over all its lives; each life has a folder of its own."""

    def __init__(self, root: Path, scheduler: Scheduler, random: Random) -> None:
        self._root = root
        self._scheduler = scheduler
        self._random = random
        self._life = 0
        self.folder = root / "0"
        self.folder.mkdir(parents=True)
        self._recording = self._recorded()
        self.backup: Path | None = None

    def below(self, patch: pytest.MonkeyPatch) -> None:
        """Have the stores of the next life write to this card."""
        self._recording = self._recorded()
        self._recording.below(patch)
        patch.setattr(database, "open_as_it_is", self._open_for_reading)

    def connect(self, path: Path) -> sqlite3.Connection:
        connection = cast("sqlite3.Connection", self._recording.connect(path))
        database.prepare(connection, path)
        return connection

    def back_up(self) -> None:
        """Make an image of the card, as of now."""
        self.backup = self.folder.with_name(f"{self._life}-backup")
        self._copy_to(self.backup, lambda _: True)

    def restore(self) -> None:
        """Leave to the next life the image."""
        assert self.backup is not None
        self.folder = self.backup
        self._copy(lambda _: True)
        self.backup = None

    def leave_killed(self) -> None:
        """Leave to the next life all files as they are now."""
        self._copy(lambda _: True)

    def leave_cut(self) -> None:
        """Leave to the next life what was flushed, and any part of the rest."""
        image = self._recording.disk.image(self._random)
        folder = self._copy(lambda name: not name.startswith(FILE_NAME) or name == MARK)
        for name, content in image.files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for mark in sorted(folder.rglob(MARK)):
            if self._random.random() < 0.5:
                mark.write_bytes(b"")

    def _recorded(self) -> _Recorded:
        files = [
            store / f"{FILE_NAME}{suffix}" for store in store_folders(self.folder).values() for suffix in ("", "-wal")
        ]
        before = {str(file.relative_to(self.folder)): file.read_bytes() for file in files if file.exists()}
        return _Recorded(self.folder, self._scheduler, Disk(before))

    def _copy(self, is_kept: Callable[[str], bool]) -> Path:
        self._life += 1
        after = self._root / str(self._life)
        self._copy_to(after, is_kept)
        self.folder = after
        return after

    def _copy_to(self, folder: Path, is_kept: Callable[[str], bool]) -> None:
        folder.mkdir()
        for file in sorted(self.folder.rglob("*")):
            if file.is_file() and not file.name.endswith(PASSING) and is_kept(file.name):
                copy = folder / file.relative_to(self.folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)

    def _open_for_reading(self, path: Path) -> sqlite3.Connection:
        if not path.exists():
            raise StoreError(f"{path}: there is no store yet")
        return cast("sqlite3.Connection", connect_for_reading(path))
