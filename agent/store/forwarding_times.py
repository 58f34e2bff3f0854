"""When the latest batches reached Kafka, and when the table confirmed them: in memory, lost with the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from agent.store.port import Batch

BATCHES_KEPT = 1_000


class ForwardingTimes:
    """Times of batches, in milliseconds since 1970 UTC; any thread may note and read."""

    def __init__(self) -> None:
        self._forwarded: deque[_Entry] = deque(maxlen=BATCHES_KEPT)
        self._processed: deque[_Entry] = deque(maxlen=BATCHES_KEPT)

    def note_forwarded(self, batch: Batch, now: int) -> None:
        """Note that Kafka has a batch; if it is sent again, the later time counts."""
        self._forwarded.append(_Entry(batch.first, batch.last, now))

    def note_processed(self, batches: Sequence[Batch], now: int) -> None:
        """Note that the table has batches."""
        self._processed.extend(_Entry(batch.first, batch.last, now) for batch in batches)

    def of(self, position: int) -> tuple[int | None, int | None]:
        """Return when the event at a position was forwarded and when it was processed; None where unknown."""
        return _latest(self._forwarded, position), _latest(self._processed, position)


class _Entry(NamedTuple):
    first: int
    last: int
    time: int


def _latest(entries: deque[_Entry], position: int) -> int | None:
    return next((one.time for one in reversed(list(entries)) if one.first <= position <= one.last), None)
