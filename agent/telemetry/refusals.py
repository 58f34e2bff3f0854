"""The requests of the last minutes that were refused, by reason: bounded, in memory, lost with the process.

A refused sensor leaves no event, no device and no rejected bytes; this is what tells that it exists.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self, final

from agent.clock import Clock
from agent.delivery import Answer
from agent.terminal import count

SPAN_MS: Final = 300_000
"""The latest one or two spans are shown: five to ten minutes."""
REASONS_MAX: Final = 20
"""Reasons that are counted apart in a span; further ones together."""
REASONS_SHOWN: Final = 5
OTHERS: Final = "other reasons"
REASON_CHARACTERS_MAX: Final = 200
LINES_MAX: Final = 20
LINES_MS: Final = 3_600_000
"""At most one line for each reason, and LINES_MAX lines, are logged in this time; counting continues."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why requests were refused."""

    via: str
    reason: str
    """As the sensor was told."""
    count: int
    sender: str
    """Of the latest such request."""


@dataclass(frozen=True, slots=True)
class RecentRequests:
    """The requests with events of the last minutes."""

    since: int
    """In milliseconds since 1970 UTC."""
    requests: int
    refused: int
    """Those of which nothing was stored or known already."""
    reasons: tuple[Reason, ...]
    """The most frequent ones."""

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Self | None:
        """Return the requests in a document of `Refusals`; None without one, or from another version."""
        try:
            reasons = tuple([Reason(**one) for one in document["reasons"]]) if document else ()
            return cls(**{**document, "reasons": reasons}) if document else None
        except (KeyError, TypeError):
            return None

    def text(self) -> str:
        """Return the figures in words."""
        if not self.refused:
            return "none refused in the last minutes"
        asked = count(self.requests, "request")
        reasons = "; ".join(f"{one.reason} ({one.via}, {one.count:,}, last from {one.sender})" for one in self.reasons)
        return f"{self.refused:,} of {asked} refused in the last minutes: {reasons}"


@dataclass(slots=True)
class _Span:
    begun_ms: int
    taken: int
    """The counter of accepted requests at its beginning."""
    counts: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """Number and latest sender by protocol and reason."""


@final
class Refusals:
    """Counts refused requests in the loop's thread; any thread may read."""

    def __init__(self, taken: Callable[[], int], clock: Clock) -> None:
        self._taken = taken
        self._clock = clock
        self._now = self._before = _Span(clock.monotonic_ms(), taken())
        self._logged: set[tuple[str, str]] = set()
        self._logged_since = clock.monotonic_ms()

    def add(self, via: str, sender: str, answer: Answer) -> None:
        """Count a refused request, and log the first of each reason in an hour."""
        now = self._clock.monotonic_ms()
        if now - self._now.begun_ms >= SPAN_MS:
            latest = _Span(now, self._taken())
            self._before = self._now if now - self._now.begun_ms < 2 * SPAN_MS else latest
            self._now = latest
        reason = f"{answer.status.value}: {answer.reason}"[:REASON_CHARACTERS_MAX]
        if now - self._logged_since >= LINES_MS:
            self._logged.clear()
            self._logged_since = now
        if (via, reason) not in self._logged and len(self._logged) < LINES_MAX:
            self._logged.add((via, reason))
            _log.warning("request=refused via=%s sender=%r reason=%r", via, sender, reason)
        counts = self._now.counts
        key = (via, reason) if (via, reason) in counts or len(counts) < REASONS_MAX else (via, OTHERS)
        counts[key] = (counts.get(key, (0, ""))[0] + 1, sender)

    def recent(self) -> RecentRequests:
        before, now, moment = self._before, self._now, self._clock.monotonic_ms()
        if moment - before.begun_ms > 2 * SPAN_MS:
            before = now
        totals: dict[tuple[str, str], tuple[int, str]] = {}
        for span in (before, now) if before is not now else (now,):
            if moment - span.begun_ms <= 2 * SPAN_MS:
                for key, (number, sender) in list(span.counts.items()):
                    totals[key] = (totals.get(key, (0, ""))[0] + number, sender)
        most = sorted(totals.items(), key=lambda one: -one[1][0])[:REASONS_SHOWN]
        refused = sum(number for number, _ in totals.values())
        return RecentRequests(
            self._clock.wall_ms() - (moment - before.begun_ms),
            self._taken() - before.taken + refused,
            refused,
            tuple([Reason(via, reason, number, sender) for (via, reason), (number, sender) in most]),
        )

    def document(self) -> bytes:
        """Return the recent requests as JSON, for commands in other processes."""
        return json.dumps(asdict(self.recent())).encode()
