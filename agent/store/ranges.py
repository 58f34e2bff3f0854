"""Sets of positions as ranges, so that no event's row is updated for its state (decision 6)."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from agent.store.port import Batch

_first = attrgetter("first")


class Ranges:
    """A set of positions, kept as sorted ranges that neither touch nor overlap."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int) -> None:
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def keep_highest(self, ranges_max: int) -> int:
        """Remove the lowest ranges beyond a number of them; return how many positions they had."""
        excess = max(0, len(self._firsts) - ranges_max)
        removed = sum(last - first + 1 for first, last in zip(self._firsts[:excess], self._lasts[:excess], strict=True))
        del self._firsts[:excess], self._lasts[:excess]
        return removed

    def count(self, floor: int = 1) -> int:
        """Count the positions from `floor` on."""
        return sum(max(0, last - max(first, floor) + 1) for first, last in self)

    def end_of(self, position: int) -> int | None:
        """Return the last position of the range that holds this one."""
        at = bisect_right(self._firsts, position) - 1 if self._firsts else -1
        return self._lasts[at] if at >= 0 and self._lasts[at] >= position else None

    def holes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two positions, both included, that are not in the set."""
        while first <= last:
            end = self.end_of(first)
            if end is None:
                end = min((self.first_above(first) or last + 1) - 1, last)
                yield first, end
            first = end + 1

    def first_above(self, position: int) -> int | None:
        """Return the first position of the next range that starts above this one."""
        at = bisect_right(self._firsts, position)
        return self._firsts[at] if at < len(self._firsts) else None


class Coverage:
    """Batches in Kafka and ranges in the table; all other positions are new."""

    def __init__(self, batches: Iterable[Batch] = (), processed: Iterable[tuple[int, int]] = ()) -> None:
        self._batches: list[Batch] = sorted(batches, key=_first)
        self.processed = Ranges(processed)

    def forwarded(self) -> Sequence[Batch]:
        """Return the batches that wait for their receipt, in order."""
        return tuple(self._batches)

    def add_forwarded(self, batch: Batch) -> None:
        insort(self._batches, batch, key=_first)

    def uncover(self, batch: Batch) -> bool:
        """Uncover a batch; return False where it is not covered exactly as given."""
        at = bisect_left(self._batches, batch.first, key=_first)
        if at == len(self._batches) or self._batches[at] != batch:
            return False
        del self._batches[at]
        return True

    def next_new(self, after: int, end: int) -> tuple[int, int] | None:
        """Return the first range of new positions above `after`, up to `end` at most."""
        first = after + 1
        while (covered_to := self._covered_to(first)) is not None:
            first = covered_to + 1
        if first > end:
            return None
        starts = (self._next_batch_start(first), self.processed.first_above(first))
        return first, min([end, *(start - 1 for start in starts if start is not None)])

    def processed_to(self, floor: int) -> int:
        """Return the position up to which all is processed, from `floor` on; floor - 1 where nothing is."""
        end = self.processed.end_of(floor)
        return floor - 1 if end is None else end

    def batch(self, position: int) -> Batch | None:
        """Return the batch that waits for its receipt and holds a position."""
        at = bisect_right(self._batches, position, key=_first) - 1
        return self._batches[at] if at >= 0 and self._batches[at].last >= position else None

    def _covered_to(self, position: int) -> int | None:
        batch = self.batch(position)
        return self.processed.end_of(position) if batch is None else batch.last

    def _next_batch_start(self, position: int) -> int | None:
        at = bisect_right(self._batches, position, key=_first)
        return self._batches[at].first if at < len(self._batches) else None
