"""The changes of a file system and its flushes, with those of names in addition to those of contents."""

from __future__ import annotations

from dataclasses import dataclass

from tests.agent.store.faults.recording import Ack, Sync, Truncate, Write


@dataclass(frozen=True, slots=True)
class Link:
    """A new name for a file, which is identified by a number."""

    path: str
    file: str


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name removed."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A file renamed within a folder."""

    path: str
    new: str
    file: str


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """A flush of a folder: all earlier changes of its names are on the medium."""

    path: str


Step = Write | Truncate | Sync | Ack | Link | Unlink | Rename | SyncFolder
