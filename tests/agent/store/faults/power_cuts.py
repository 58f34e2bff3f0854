"""The result of a power cut: of the steps up to a moment, all flushed writes and any part of the others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.agent.store.faults.recording import Ack, Delete, FailedSync, Step, Sync, Truncate, Write

SECTOR_BYTES = (512, 4096)
WHOLE, ABSENT = 0.4, 0.7
"""Below the first a step survives completely, below the second not at all, above in parts."""


@dataclass(frozen=True, slots=True)
class Image:
    """The files after a power cut, and the events acked by then."""

    files: dict[str, bytes]
    acked: frozenset[bytes]


class Disk:
    """The medium, and the writes that the file system has not flushed."""

    def __init__(self, before: Mapping[str, bytes]) -> None:
        self._flushed = {name: bytearray(content) for name, content in before.items()}
        self._pending: list[Write | Truncate] = []
        self._forgotten: list[Write] = []
        """Written, and considered clean since a flush has failed."""
        self._acked: set[bytes] = set()

    def take(self, step: Step) -> None:
        match step:
            case Ack(fingerprints):
                self._acked.update(fingerprints)
            case Sync(file):
                for change in self._pending:
                    if change.file == file:
                        _apply(self._flushed, change)
                self._pending = [change for change in self._pending if change.file != file]
            case FailedSync(file):
                lost = [change for change in self._pending if change.file == file and isinstance(change, Write)]
                self._forgotten.extend(lost)
                self._pending = [change for change in self._pending if change not in lost]
            case Delete(file):
                self._flushed.pop(file, None)
                self._pending = [change for change in self._pending if change.file != file]
                self._forgotten = [change for change in self._forgotten if change.file != file]
            case change:
                self._pending.append(change)
                self._forgotten = [earlier for earlier in self._forgotten if _survives(earlier, change)]

    def image(self, random: Random) -> Image:
        files = {name: bytearray(content) for name, content in self._flushed.items()}
        sector = random.choice(SECTOR_BYTES)
        for change in (*self._forgotten, *self._pending):
            fate = random.random()
            if fate < WHOLE:
                _apply(files, change)
            elif fate >= ABSENT and isinstance(change, Write):
                for piece in _sectors(change, sector):
                    if random.random() < 0.5:
                        _apply(files, piece)
        return Image({name: bytes(content) for name, content in files.items()}, frozenset(self._acked))


def images(
    steps: Sequence[Step], count: int, random: Random, before: Mapping[str, bytes] | None = None
) -> Iterator[Image]:
    """Yield images of power cuts at moments drawn over all steps, in their order; `before` are the initial files.

    Half of them are right after an ack: from then on the events have to be on the medium.
    """
    after_acks = [place + 1 for place, step in enumerate(steps) if isinstance(step, Ack)]
    anywhere = range(len(steps) + 1)
    moments = sorted(random.choice(random.choice((anywhere, after_acks or anywhere))) for _ in range(count))
    disk, taken = Disk(before or {}), 0
    for moment in moments:
        for step in steps[taken:moment]:
            disk.take(step)
        taken = moment
        yield disk.image(random)


def _apply(files: dict[str, bytearray], change: Write | Truncate) -> None:
    content = files.setdefault(change.file, bytearray())
    match change:
        case Write(_, offset, data):
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
        case Truncate(_, size):
            content[size:] = bytes(max(0, size - len(content)))


def _survives(earlier: Write, step: Write | Truncate) -> bool:
    """Whether the data that the kernel considers clean is still the only data at its place."""
    if step.file != earlier.file:
        return True
    end = earlier.offset + len(earlier.data)
    if isinstance(step, Truncate):
        return end <= step.size
    return end <= step.offset or step.offset + len(step.data) <= earlier.offset


def _sectors(change: Write, size: int) -> Iterator[Write]:
    """Split a write at the medium's sectors."""
    at = 0
    while at < len(change.data):
        length = size - (change.offset + at) % size
        yield Write(change.file, change.offset + at, change.data[at : at + length])
        at += length
