"""Which events were accepted while the clock was untrusted, and how far from the time since boot it was then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

STEP_MS: Final = 500
"""A change of the clock by more than this begins another range, so that a correction is right to within as much."""
RANGES_MAX: Final = 100
"""How many ranges are kept until the clock is trusted; events after further steps of the clock are not corrected."""


@dataclass(frozen=True, slots=True)
class Range:
    """Positions whose events were accepted under an untrusted clock with one offset."""

    first: int
    last: int
    offset_ms: int
    """The wall clock less the time since boot."""


@dataclass(frozen=True, slots=True)
class UntrustedClock:
    """The ranges of one boot that no event has declared yet, as far as they are begun."""

    boot: str = ""
    begun: tuple[tuple[int, int | None], ...] = ()
    """The first position of each range and its offset in milliseconds, None where it is not corrected."""
    declared: int = 0
    """How many events have declared ranges since the store was created."""

    def noted(self, boot: str, position: int, offset_ms: int) -> Self:
        """Return the ranges with an event accepted under an untrusted clock: in the latest one, or in a new one."""
        begun = self.begun if boot == self.boot else ()
        if len(begun) > RANGES_MAX:
            return self
        if len(begun) == RANGES_MAX:
            return replace(self, begun=(*begun, (position, None)))
        if begun and abs(offset_ms - (begun[-1][1] or 0)) <= STEP_MS:
            return self
        return replace(self, boot=boot, begun=(*begun, (position, offset_ms)))

    def ranges(self, boot: str, last: int) -> Iterator[Range]:
        """Yield the ranges of this boot that can be corrected, where `last` is the last position."""
        if boot != self.boot:
            return
        ends = [first - 1 for first, _ in self.begun[1:]] + [last]
        for (first, offset_ms), end in zip(self.begun, ends, strict=True):
            if offset_ms is not None and first <= end:
                yield Range(first, end, offset_ms)

    def text(self) -> str:
        """Return the fact's text."""
        return json.dumps([self.boot, self.begun, self.declared])


def read_untrusted_clock(text: str | None) -> UntrustedClock:
    """Read the fact's text; None is that of a store without such events."""
    if text is None:
        return UntrustedClock()
    boot, begun, declared = json.loads(text)
    return UntrustedClock(boot, tuple((first, offset_ms) for first, offset_ms in begun), declared)
