"""The states of stored events, derived from batches, processed ranges and gaps."""

from __future__ import annotations

from bisect import bisect_right

from agent.store.port import Batch
from agent.store.ranges import Ranges
from agent.store.schema import gaps, tables
from agent.store.schema.database import Reads

NEW, FORWARDED, PROCESSED, LOST = "new", "forwarded", "processed", "lost"


class States:
    """A snapshot of the states."""

    def __init__(self, connection: Reads) -> None:
        self.batches = tables.load_batches(connection)
        self.lost = Ranges((gap.first, gap.last) for gap in gaps.load(connection) if gap.count)
        self.done = Ranges([*self.lost, *tables.load_processed(connection)])
        """Positions that are processed or lost."""
        self._firsts = [batch.first for batch in self.batches]

    def state(self, position: int) -> str:
        """Return the state of a position."""
        if self.lost.end_of(position) is not None:
            return LOST
        if self.done.end_of(position) is not None:
            return PROCESSED
        return NEW if self.batch(position) is None else FORWARDED

    def batch(self, position: int) -> Batch | None:
        """Return the batch that waits for its receipt and holds a position."""
        at = bisect_right(self._firsts, position) - 1
        return self.batches[at] if at >= 0 and self.batches[at].last >= position else None
