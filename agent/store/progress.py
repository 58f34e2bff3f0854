"""The progress of events beyond the gateway: marks are in memory at once, and on disk with the next commit."""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from agent.store.counts import EventCounts
from agent.store.port import Batch
from agent.store.ranges import Coverage, Ranges
from agent.store.schema import tables

Change = Callable[[sqlite3.Connection], None]

MERGED_EVENTS_MAX = 10_000
BATCHES_MAX = 4_000
"""Batches from which on those on disk are merged, too: each takes 0.5 kB of memory, 2.5 kB with events in 12
partitions, and without receipts they accumulate, with exactly-once delivery one for each transaction."""

TIMES_MS = 60_000
"""The shortest time between two that are noted for the purge: without receipts, events are marked twice a second, and
each time is kept for `store.keep_processed`."""

TIMED_BATCHES = 1_000
"""Batches whose times of forwarding are kept, and as many of processing."""

LOST_RANGES_MAX = 1_000
"""Gaps whose positions are kept, the latest, as an opening loads them: a lane whose events expire while others are sent
has a new one every few seconds."""


class Progress:
    """Batches, processed positions and gaps; thread-safe. A mark that a crash loses is made again."""

    def __init__(self, coverage: Coverage, end: int, lost: Iterable[tuple[int, int]] = ()) -> None:
        self._coverage = coverage
        self._end = end
        self._lost = Ranges(lost)
        """Positions in the latest gaps; they are covered as processed, too."""
        self._lost_before = 0
        """How many positions are in earlier gaps of this opening."""
        self._releasing = Ranges()
        """Positions that are processed once the transaction in progress is on disk."""
        self._changes: list[Change] = []
        self._unwritten: Batch | None = None
        """The latest batch while it is not on disk and may still grow."""
        self._merge_from = BATCHES_MAX
        """The number of batches from which on they are merged."""
        self._returned = False
        self._changed = threading.Condition()
        self.processed_times = ProcessedTimes()
        self._cut_batches()  # a kill may precede the transaction that removes a batch after its events

    def advance(self, end: int) -> None:
        with self._changed:
            self._end = end
            self._changed.notify_all()

    @property
    def end(self) -> int:
        """The last committed position."""
        with self._changed:
            return self._end

    def next_new(self, after: int) -> tuple[int, int] | None:
        """Return the next range of new events above a position."""
        with self._changed:
            return self._coverage.next_new(after, self._end)

    def wait(self, after: int, seconds: float) -> bool:
        """Wait for a new event above a position or a returned batch."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._returned or self._coverage.next_new(after, self._end) is not None, seconds
            )

    def pop_returned(self) -> bool:
        with self._changed:
            returned, self._returned = self._returned, False
            return returned

    def forwarded(self) -> Sequence[Batch]:
        with self._changed:
            return self._coverage.forwarded()

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        """Cover what is not processed of a batch, with a fact to write beside it.

        Some of it may have been given up since it was sent.
        """
        with self._changed:
            self._cover(batch)
            if len(self._coverage.forwarded()) > self._merge_from:
                self._merge_all()
            if note is not None:
                self._changes.append(lambda connection: tables.write_fact(connection, *note))

    def mark_processed(self, batches: Sequence[Batch], monotonic_ms: int, floor: int) -> None:
        """Mark batches processed; `floor` is the lowest position that is still kept."""
        with self._changed:
            for batch in self._uncover(batches):
                self._coverage.processed.add(batch.first, batch.last)
            self._changes.append(self._write_processed)
            self.processed_times.note(monotonic_ms, self._coverage.processed_to(floor))

    def return_batches(self, batches: Sequence[Batch]) -> None:
        with self._changed:
            self._uncover(batches)
            self._returned = True
            self._changed.notify_all()

    @contextmanager
    def releasing(self, first: int, last: int) -> Iterator[Change]:
        """Cover positions as processed once the block has written the yielded change; not where it raises."""
        with self._changed:
            self._releasing.add(first, last)
        try:
            yield self._write_processed
            with self._changed:
                self._coverage.processed.add(first, last)
        finally:
            with self._changed:
                self._releasing = Ranges()

    def give_up(self, first: int, last: int) -> None:
        """Cover positions whose gap is on disk."""
        with self._changed:
            self._coverage.processed.add(first, last)
            self._lost.add(first, last)
            self._lost_before += self._lost.keep_highest(LOST_RANGES_MAX)
            self._cut_batches()
            self._changes.append(self._write_processed)

    def may_cut_after(self, position: int) -> bool:
        """Whether no forwarded batch extends beyond a position that it holds."""
        with self._changed:
            return not any(batch.first <= position < batch.last for batch in self._coverage.forwarded())

    def unprocessed(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges from first to last that are not known to be processed."""
        with self._changed:
            return list(self._coverage.processed.holes(first, last))

    def not_lost(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges from first to last that are in none of the latest gaps, processed or not."""
        with self._changed:
            return list(self._lost.holes(first, last))

    def processed_to(self, floor: int) -> int:
        """Return the position up to which all is processed from `floor` on."""
        with self._changed:
            return self._coverage.processed_to(floor)

    def counts(self, floor: int) -> EventCounts:
        """Count the events that are new, forwarded, processed and lost; of the processed those from `floor` on."""
        with self._changed:
            forwarded = sum(batch.last - batch.first + 1 for batch in self._coverage.forwarded())
            done, lost = self._coverage.processed, self._lost
            kept = done.count(floor) - lost.count(floor)
            return EventCounts(self._end - forwarded - done.count(), forwarded, kept, self._lost_before + lost.count())

    def pending(self) -> tuple[Change, ...]:
        """Return the changes that are not on disk, in their order; each may run twice."""
        with self._changed:
            self._unwritten = None
            return tuple(self._changes)

    def written(self, changes: Sequence[Change]) -> None:
        with self._changed:
            del self._changes[: len(changes)]

    def has_pending(self) -> bool:
        return bool(self._changes)

    def _write_processed(self, connection: sqlite3.Connection) -> None:
        """Write the current ranges, which include all earlier ones."""
        with self._changed:
            ranges = Ranges([*self._coverage.processed, *self._releasing])
        tables.replace_processed(connection, ranges)

    def _cover(self, batch: Batch) -> None:
        """Cover what is not processed of a batch; a preceding batch that is not on disk yet grows instead."""
        for first, last in self._coverage.processed.holes(batch.first, batch.last):
            part = replace(batch, first=first, last=last)
            merged = _merge(self._unwritten, part)
            if merged is not None and self._unwritten is not None and self._coverage.uncover(self._unwritten):
                part = merged
            self._coverage.add_forwarded(part)
            self._unwritten = part
            self._changes.append(partial(tables.insert_batch, batch=part))

    def _merge_all(self) -> None:
        """Merge all adjacent batches; where few can be merged, the next attempt waits for twice as many."""
        before = self._coverage.forwarded()
        merged = {batch.first: batch for batch in _merge_adjacent(before)}
        replaced = [batch for batch in before if merged.get(batch.first) is not batch]
        self._uncover(replaced)
        for whole in [merged[batch.first] for batch in replaced if batch.first in merged]:
            self._coverage.add_forwarded(whole)
            self._changes.append(partial(tables.insert_batch, batch=whole))
        self._unwritten = None
        self._merge_from = max(BATCHES_MAX, 2 * len(merged))

    def _cut_batches(self) -> None:
        """Remove from the batches what is processed, so that each position has one state."""
        processed = self._coverage.processed
        for batch in self._coverage.forwarded():
            if list(processed.holes(batch.first, batch.last)) != [(batch.first, batch.last)] and self._uncover([batch]):
                self._cover(batch)

    def _uncover(self, batches: Sequence[Batch]) -> list[Batch]:
        taken = [batch for batch in batches if self._coverage.uncover(batch)]
        self._changes.extend(partial(tables.delete_batch, batch=batch) for batch in taken)
        return taken


class ProcessedTimes:
    """Positions up to which all was processed, with their monotonic times; thread-safe."""

    def __init__(self) -> None:
        self._times: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()

    def note(self, monotonic_ms: int, position: int) -> None:
        """Note that all up to a position is processed; a note shortly after another replaces that one."""
        with self._lock:
            if len(self._times) > 1 and self._times[-1][0] - self._times[-2][0] < TIMES_MS:
                self._times.pop()
            self._times.append((monotonic_ms, position))

    def pop_until(self, until_ms: int) -> int | None:
        """Remove the notes up to a time; return the position of the latest of them, None where there is none."""
        position = None
        with self._lock:
            while self._times and self._times[0][0] <= until_ms:
                _, position = self._times.popleft()
        return position

    def oldest_ms(self) -> int | None:
        """Return the time of the oldest note, None where there is none."""
        with self._lock:
            return self._times[0][0] if self._times else None


class ForwardingTimes:
    """When the latest batches reached Kafka, and when the table had them, in milliseconds since 1970 UTC.

    In memory, and lost with the process; any thread may note and read.
    """

    def __init__(self) -> None:
        self._forwarded: deque[tuple[int, int, int]] = deque(maxlen=TIMED_BATCHES)
        """First position, last position, time."""
        self._processed: deque[tuple[int, int, int]] = deque(maxlen=TIMED_BATCHES)

    def note_forwarded(self, batch: Batch, now: int) -> None:
        """Note that Kafka has a batch; if it is sent again, the later time counts."""
        self._forwarded.append((batch.first, batch.last, now))

    def note_processed(self, batches: Sequence[Batch], now: int) -> None:
        self._processed.extend([(batch.first, batch.last, now) for batch in batches])

    def of(self, position: int) -> tuple[int | None, int | None]:
        """Return when the event at a position was forwarded and when it was processed; None where unknown."""
        return _latest(self._forwarded, position), _latest(self._processed, position)


def _latest(entries: deque[tuple[int, int, int]], position: int) -> int | None:
    return next((time for first, last, time in reversed(list(entries)) if first <= position <= last), None)


def _merge_adjacent(batches: Iterable[Batch]) -> list[Batch]:
    """Return batches, in order, those merged that can be."""
    merged: list[Batch] = []
    for batch in batches:
        whole = _merge(merged[-1] if merged else None, batch)
        if whole is None:
            merged.append(batch)
        else:
            merged[-1] = whole
    return merged


def _merge(left: Batch | None, right: Batch) -> Batch | None:
    """Return two adjacent batches of one topic and leader as one; None where they are not, or grow too large."""
    if left is None or left.last + 1 != right.first or left.topic_id != right.topic_id:
        return None
    if right.last - left.first >= MERGED_EVENTS_MAX:
        return None
    partitions = dict(left.partitions)
    for number, offsets in right.partitions.items():
        earlier = partitions.get(number)
        if earlier is not None and earlier.leader_epoch != offsets.leader_epoch:
            return None
        partitions[number] = offsets if earlier is None else earlier.united(offsets)
    return Batch(left.first, right.last, left.topic_id, partitions)
