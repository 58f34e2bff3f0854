"""What a link does to a datagram, or to a piece of a stream: small faults that compose.

Each fault of a peer and direction has its own randomness, so that what happens to the n-th datagram depends on the
seed alone; only outages and airtime depend on the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Protocol

FRAME_OVERHEAD_BYTES = 31
"""Of an IEEE 802.15.4 frame: preamble, addresses, check sequence, 6LoWPAN's fragment header."""
HELD_BACK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Flight:
    """A datagram in the air, and how long it still takes; `now` counts from the first report, in seconds."""

    datagram: bytes
    seconds: float = 0.0
    now: float = 0.0

    def later(self, seconds: float) -> Flight:
        """Return the same datagram with more delay."""
        return replace(self, seconds=self.seconds + seconds)


class Fault(Protocol):
    """One thing that a link does to datagrams of one peer in one direction."""

    def play(self, flight: Flight) -> Sequence[Flight]:
        """Return what arrives: nothing, the datagram, a late or changed one, or several."""


Faults = Callable[[Random], Sequence[Fault]]
"""Makes the faults of one peer in one direction, in the order in which they play, from its own randomness."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lose datagrams independently of one another; with frames, one lost frame loses the datagram."""

    rate: float
    random: Random
    frame_bytes: int = 0

    def play(self, flight: Flight) -> Sequence[Flight]:
        frames = frames_of(flight.datagram, self.frame_bytes)
        return () if self.random.random() >= (1 - self.rate) ** frames else (flight,)


@dataclass(slots=True)
class Bursts:
    """Lose datagrams in bursts: Gilbert-Elliott's two states, of which the good one loses nothing."""

    loss: float
    begins: float
    ends: float
    random: Random
    bad: bool = False

    def play(self, flight: Flight) -> Sequence[Flight]:
        self.bad = self.random.random() >= self.ends if self.bad else self.random.random() < self.begins
        lost = self.random.random() < self.loss
        return () if self.bad and lost else (flight,)


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold each datagram for a while; a later one with a shorter delay overtakes it."""

    seconds_min: float
    seconds_max: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        return (flight.later(self.random.uniform(self.seconds_min, self.seconds_max)),)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Hold some datagrams back for so long that the next ones overtake them."""

    rate: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        return (flight.later(HELD_BACK_SECONDS) if self.random.random() < self.rate else flight,)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Deliver some datagrams twice, the second a moment later."""

    rate: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        if self.random.random() >= self.rate:
            return (flight,)
        return (flight, flight.later(self.random.uniform(0.0, HELD_BACK_SECONDS)))


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Cut some datagrams short, or put noise in their place.

    A change of single bits is not played: checksums (802.15.4's, UDP's) find it, and it is a loss.
    """

    rate: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        if self.random.random() >= self.rate:
            return (flight,)
        size = len(flight.datagram)
        if self.random.random() < 0.5:
            # At most four bytes are left: no part of it can be taken for a whole request.
            return (replace(flight, datagram=flight.datagram[: self.random.randrange(min(size, 4) + 1)]),)
        return (replace(flight, datagram=self.random.randbytes(size)),)


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Drop what is larger than the MTU."""

    bytes_max: int

    def play(self, flight: Flight) -> Sequence[Flight]:
        return () if len(flight.datagram) > self.bytes_max else (flight,)


@dataclass(frozen=True, slots=True)
class Dead:
    """Lose everything while the link is dead: spans of begin and end, in seconds since the first report."""

    spans: Sequence[tuple[float, float]]

    def play(self, flight: Flight) -> Sequence[Flight]:
        return () if any(begin <= flight.now < end for begin, end in self.spans) else (flight,)


@dataclass(slots=True)
class Channel:
    """Airtime that all peers share in both directions: one datagram at a time."""

    bits_per_second: int
    duty_cycle: float
    frame_bytes: int
    free_at: float = field(default=0.0)

    def play(self, flight: Flight) -> Sequence[Flight]:
        size = len(flight.datagram) + FRAME_OVERHEAD_BYTES * frames_of(flight.datagram, self.frame_bytes)
        airtime = 8 * size / self.bits_per_second
        start = max(flight.now + flight.seconds, self.free_at)
        self.free_at = start + airtime / self.duty_cycle
        return (replace(flight, seconds=start + airtime - flight.now),)


def play(faults: Sequence[Fault], flight: Flight) -> Sequence[Flight]:
    """Play all faults on a flight, one after the other."""
    flights: Sequence[Flight] = (flight,)
    for fault in faults:
        flights = [after for before in flights for after in fault.play(before)]
    return flights


def frames_of(datagram: bytes, frame_bytes: int) -> int:
    """Count the frames that a datagram travels in."""
    return max(1, ceil(len(datagram) / frame_bytes)) if frame_bytes else 1
