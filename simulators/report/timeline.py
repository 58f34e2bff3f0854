"""Cumulative counts over time at each station of the path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulators.ledger import Acked, Line, Reported, Sent

STEP_MILLISECONDS = 250


@dataclass(frozen=True, slots=True)
class Timeline:
    """Counts at the end of each time step since the first event, one list per station."""

    begin: int
    """Time of the first event, in milliseconds since 1970 UTC."""
    seconds: list[float]
    reported: list[int]
    acked: list[int]
    in_kafka: list[int]
    in_table: list[int]

    def second(self, moment: int) -> float:
        """Return the position of a moment, in milliseconds since 1970 UTC, on the time line, in seconds."""
        return (moment - self.begin) / 1000


def timeline(lines: Iterable[Line], in_kafka: Sequence[int], commits: Sequence[tuple[int, int]]) -> Timeline:
    """Return the cumulative counts; each commit of the table is a time and a number of rows."""
    reported, acked = [], []
    for line in lines:
        if isinstance(line, Reported):
            reported.append(line.at)
        elif isinstance(line, Acked):
            acked.append(line.at)
    in_table = [moment for moment, rows in commits for _ in range(rows)]
    stations = [reported, acked, in_kafka, in_table]
    moments = [moment for station in stations for moment in station]
    begin, end = min(moments, default=0), max(moments, default=0)
    steps = (end - begin) // STEP_MILLISECONDS + 2
    counted = [_cumulative(station, begin, steps) for station in stations]
    return Timeline(begin, [step * STEP_MILLISECONDS / 1000 for step in range(steps)], *counted)


def transmissions_per_event(lines: Iterable[Line]) -> dict[int, int]:
    """Return the number of events by their number of transmissions."""
    sent = Counter(line.mark for line in lines if isinstance(line, Sent))
    return dict(sorted(Counter(sent.values()).items()))


def _cumulative(moments: Sequence[int], begin: int, steps: int) -> list[int]:
    """Return the number of moments up to each step; the first count is 0."""
    arrived = Counter((moment - begin) // STEP_MILLISECONDS + 1 for moment in moments)
    counts, count = [], 0
    for step in range(steps):
        count += arrived[step]
        counts.append(count)
    return counts
