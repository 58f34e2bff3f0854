"""Reads stored events, each with its label, their checksums verified."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from agent.store.errors import DamagedEventError, DamagedStoreError
from agent.store.format.packing import unpack, unpack_readable
from agent.store.port import LabelRange, StoredEvent
from agent.store.schema import tables
from agent.store.schema.database import Reads
from contract.event import Label

_COMMITS_AT_A_TIME = 64


class Epochs:
    """The epochs of a store, which determine each position's label."""

    def __init__(self, rows: Sequence[tuple[int, str]]) -> None:
        self._firsts = [first for first, _ in rows]
        self._names = [name for _, name in rows]

    @classmethod
    def load(cls, connection: Reads) -> Epochs:
        return cls(tables.load_epoch_names(connection))

    def label(self, position: int) -> Label:
        at = bisect_right(self._firsts, position) - 1
        return Label(self._names[at], position - self._firsts[at] + 1)

    def covers(self, position: int) -> bool:
        """Whether a position belongs to a known epoch."""
        return bool(self._firsts) and position >= self._firsts[0]

    def has(self, epoch: str) -> bool:
        return epoch in self._names

    def label_ranges(self, first: int, last: int) -> Iterator[LabelRange]:
        at = max(bisect_right(self._firsts, first) - 1, 0)
        while at < len(self._firsts) and self._firsts[at] <= last:
            start = self._firsts[at]
            end = self._firsts[at + 1] - 1 if at + 1 < len(self._firsts) else last
            yield LabelRange(self._names[at], max(first, start) - start + 1, min(last, end) - start + 1)
            at += 1

    def add(self, first_position: int, epoch: str) -> None:
        self._firsts.append(first_position)
        self._names.append(epoch)

    def last(self) -> tuple[int, str] | None:
        """Return first position and name of the latest epoch."""
        return (self._firsts[-1], self._names[-1]) if self._firsts else None


def read_packed(connection: Reads, first: int, last: int) -> Iterator[StoredEvent]:
    """Yield the events from first to last in order, without labels, as `read_commits` does."""
    for events in read_commits(connection, first, last):
        yield from events


def read_one(connection: Reads, position: int) -> StoredEvent | None:
    """Return the event at a position, None where there is none that can be read."""
    try:
        return next(read_packed(connection, position, position), None)
    except DamagedEventError:
        return None


def read_commits(connection: Reads, first: int, last: int) -> Iterator[list[StoredEvent]]:
    """Yield the consecutive events from first to last of one commit after the other, lazily.

    Raise DamagedEventError where an event is not whole, after those before it. A later call that starts above the
    damage reads on.
    """
    following = tables.commit_start(connection, first)
    while following <= last:
        commits = tables.commits_between(connection, following, last, _COMMITS_AT_A_TIME).fetchall()
        for first_position, count, packed in commits:
            check_commit(first_position, count, packed)
            following = first_position + count
            if following <= first:
                continue
            events, damage = _read_commit(first_position, count, packed, first, last)
            if events:
                yield events
            if damage is not None:
                raise damage
        if len(commits) < _COMMITS_AT_A_TIME:
            return


def check_commit(first_position: int, count: object, packed: object) -> None:
    """Raise DamagedStoreError where a row's values are not of the right types."""
    if not (isinstance(count, int) and count > 0 and isinstance(packed, bytes)):
        raise DamagedStoreError(f"commit at position {first_position}: not what was written")


def _read_commit(
    first_position: int, count: int, packed: bytes, first: int, last: int
) -> tuple[list[StoredEvent], DamagedEventError | None]:
    """Return the whole events from first to last before the first hole, and that hole or None."""
    events: list[StoredEvent] = []
    damaged = False
    try:
        events.extend(unpack(first_position, packed))  # where it raises, the events before the damage are there
    except DamagedEventError:
        damaged = True
    following = first_position + len(events)
    if first_position < first or last < following - 1:
        events = events[max(first - first_position, 0) : max(last + 1 - first_position, 0)]
    if damaged:
        return _read_around(events, first_position, count, packed, max(first, following), last)
    if following != first_position + count:
        raise DamagedStoreError(f"commit at position {first_position}: not {count} events")
    return events, None


def _read_around(
    events: list[StoredEvent], first_position: int, count: int, packed: bytes, first: int, last: int
) -> tuple[list[StoredEvent], DamagedEventError | None]:
    """Return the events and the whole ones from `first` to the first hole, and that hole or None."""
    last = min(last, first_position + count - 1)
    for event in unpack_readable(first_position, count, packed):
        if event.position > min(first, last):
            break
        if event.position == first:
            events.append(event)
            first += 1
    else:
        event = None
    if first > last:
        return events, None
    return events, DamagedEventError(first, last if event is None else min(event.position - 1, last))


def labelled(events: list[StoredEvent], epochs: Epochs) -> list[StoredEvent]:
    """Give consecutive events their labels, and return them."""
    first, last = epochs.label(events[0].position), epochs.label(events[-1].position)
    for sequence, event in enumerate(events, first.sequence):
        event.label = Label(first.epoch, sequence) if first.epoch == last.epoch else epochs.label(event.position)
    return events
