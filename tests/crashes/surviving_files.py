"""The files that a power cut leaves: of names and contents all that was flushed, and any part of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from random import Random

from tests.agent.store.faults.power_cuts import Disk
from tests.agent.store.faults.recording import Ack, Sync
from tests.crashes.disk_steps import Link, Rename, Step, SyncFolder, Unlink

_Name = Link | Unlink | Rename


@dataclass(frozen=True, slots=True)
class Survivors:
    """The files after a cut, and the ids of the events acked by then."""

    moment: int
    files: Mapping[str, bytes]
    acked: frozenset[int]

    def write_to(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        for path, content in self.files.items():
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


class _Names:
    """The names on the medium, and the changes of names that their folders have not flushed."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._flushed = dict(names)
        self._pending: list[_Name] = []

    def take(self, step: Step) -> None:
        match step:
            case Link() | Unlink() | Rename():
                self._pending.append(step)
            case SyncFolder(folder):
                for change in [change for change in self._pending if _folder_of(change) == folder]:
                    _apply(self._flushed, change)
                    self._pending.remove(change)

    def survivors(self, random: Random) -> dict[str, str]:
        """Return the names of files: a journal keeps the order of changes, other file systems any part of them."""
        names = dict(self._flushed)
        if random.random() < 0.5:
            kept = self._pending[: random.randint(0, len(self._pending))]
        else:
            kept = [change for change in self._pending if random.random() < 0.5]
        for change in kept:
            _apply(names, change)
        return names


def survivors(
    steps: Sequence[Step], before: Mapping[str, bytes], moments: Sequence[int], random: Random
) -> Iterator[Survivors]:
    """Yield what cuts at these moments, which ascend, leave: each is the number of steps made before it."""
    numbers = {path: str(number) for number, path in enumerate(sorted(before))}
    names, contents = _Names(numbers), Disk({numbers[path]: content for path, content in before.items()})
    taken = 0
    for moment in moments:
        for step in steps[taken:moment]:
            names.take(step)
            if not isinstance(step, Link | Unlink | Rename | SyncFolder):
                contents.take(step)
        taken = moment
        image = contents.image(random)
        files = {path: image.files.get(number, b"") for path, number in names.survivors(random).items()}
        yield Survivors(moment, files, frozenset(map(int, image.acked)))


def moments_of(steps: Sequence[Step], count: int, random: Random) -> list[int]:
    """Return the moments after each flush and each ack, and as many others; `count` at most, at random."""
    special = [at + 1 for at, step in enumerate(steps) if isinstance(step, Sync | SyncFolder | Ack)]
    others = [random.randint(0, len(steps)) for _ in special]
    moments = [*special, *others]
    return sorted(moments if count >= len(moments) else random.sample(moments, count))


def _folder_of(change: _Name) -> str:
    return str(PurePosixPath(change.path).parent)


def _apply(names: dict[str, str], change: _Name) -> None:
    match change:
        case Link(path, file):
            names[path] = file
        case Unlink(path):
            names.pop(path, None)
        case Rename(path, new, file):
            names.pop(path, None)
            names[new] = file
