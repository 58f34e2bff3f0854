"""The rates, the backlog and the ack latency of the last 15 minutes and 24 hours: in memory, lost with the process.

Counters are sampled at an interval, so that the history costs nothing per event. It takes 25 KB.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

from agent.clock import Clock

TICK_SECONDS = 5
"""Between two samples."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time that the history covers."""

    ticks: int
    """Samples of one point."""
    points_max: int


SPANS = {"15min": Span(1, 180), "24h": Span(60, 288)}


class Totals(NamedTuple):
    """The counters that are sampled; all but `new` and `forwarded` only grow, unless batches are returned."""

    accepted: int
    """Events of sensors since the start."""
    sent: int
    """Events that have reached Kafka, since the store was created."""
    confirmed: int
    """Events that the table has, since the store was created."""
    new: int
    forwarded: int
    commits: int
    commit_seconds: float
    """Of all commits together, which acks wait for."""


class History:
    """Points of each span."""

    def __init__(self, read: Callable[[], Totals], clock: Clock) -> None:
        self._read_totals = read
        self._clock = clock
        self._sampled_ms = clock.monotonic_ms()
        self._end = clock.wall_ms()
        totals = read()
        self._series = {name: _Series(span, totals, self._sampled_ms) for name, span in SPANS.items()}

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(self._run(), name="history")
            yield
            sampling.cancel()

    def sample(self) -> None:
        """Sample the counters; time without a sample, as on a loaded machine, gets the mean of all of it."""
        now, totals = self._clock.monotonic_ms(), self._read_totals()
        ticks = max(1, round((now - self._sampled_ms) / 1000 / TICK_SECONDS))
        self._sampled_ms, self._end = now, self._clock.wall_ms()
        for series in self._series.values():
            series.add(totals, ticks, now)

    def document(self, name: str) -> Mapping[str, object]:
        """Return the points of a span, the oldest first, as a JSON document."""
        return {
            "end": self._end,
            "step_seconds": SPANS[name].ticks * TICK_SECONDS,
            "points_max": SPANS[name].points_max,
            **self._series[name].columns(),
        }

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.sample()


class _Series:
    """The latest points of one span, in a column for each figure: rates, peaks, and the mean duration of a commit."""

    def __init__(self, span: Span, totals: Totals, now: int) -> None:
        self._span = span
        self._columns = {name: array("d") for name in ("accepted", "sent", "confirmed", "new", "forwarded", "ack_ms")}
        self._ticks = self._new = self._forwarded = 0
        self._begin(totals, now)

    def add(self, totals: Totals, ticks: int, now: int) -> None:
        """Add a sample, and a point where its interval is over."""
        self._new = max(self._new, totals.new)
        self._forwarded = max(self._forwarded, totals.forwarded)
        self._ticks += ticks
        points, self._ticks = divmod(self._ticks, self._span.ticks)
        if points:
            for column, figure in zip(self._columns.values(), self._point(totals, now), strict=True):
                column.extend([figure] * min(points, self._span.points_max))
                del column[: -self._span.points_max]
            self._begin(totals, now)

    def columns(self) -> dict[str, list[float | None]]:
        """Return the points by figure; None is an unknown value."""
        return {
            name: [None if isnan(figure) else round(figure, 3) for figure in column]
            for name, column in self._columns.items()
        }

    def _begin(self, totals: Totals, now: int) -> None:
        self._before, self._begun = totals, now
        self._new, self._forwarded = totals.new, totals.forwarded

    def _point(self, after: Totals, now: int) -> tuple[float, ...]:
        """Return the figures of an interval: events per second, the highest numbers, and NaN without a commit."""
        before, seconds = self._before, max(0.001, (now - self._begun) / 1000)
        rates = (max(0, last - first) / seconds for first, last in zip(before[:3], after[:3], strict=True))
        commits = after.commits - before.commits
        ack_ms = 1000 * (after.commit_seconds - before.commit_seconds) / commits if commits > 0 else nan
        return (*rates, self._new, self._forwarded, ack_ms)
