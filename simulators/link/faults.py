"""The faults of a link, applied to datagrams or to pieces of a stream; they compose.

Each fault of a peer and direction has its own random generator, so the fate of the n-th datagram depends on the seed
alone; only outages and airtime depend on the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Protocol

from simulators.scenario import LinkPlan

FRAME_OVERHEAD_BYTES = 31
"""Overhead of an IEEE 802.15.4 frame: preamble, addresses, check sequence, 6LoWPAN fragment header."""
HELD_BACK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Packet:
    """A datagram in flight and its remaining delay in seconds; `now` is the time since the first report, in seconds."""

    datagram: bytes
    seconds: float = 0.0
    now: float = 0.0

    def later(self, seconds: float) -> Packet:
        """Return the same datagram with an additional delay."""
        return replace(self, seconds=self.seconds + seconds)


class LinkFault(Protocol):
    """A fault in the datagrams of one peer in one direction."""

    def apply(self, packet: Packet) -> Sequence[Packet]:
        """Return what arrives: nothing, the datagram, a delayed or changed one, or several."""


LinkFaultFactory = Callable[[Random], Sequence[LinkFault]]
"""Returns the faults of one peer and direction in the order of their application, given a random generator."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Loses datagrams independently of one another; one lost frame loses the whole datagram."""

    rate: float
    random: Random
    frame_bytes: int = 0

    def apply(self, packet: Packet) -> Sequence[Packet]:
        frames = frames_of(packet.datagram, self.frame_bytes)
        return () if self.random.random() >= (1 - self.rate) ** frames else (packet,)


@dataclass(slots=True)
class BurstLoss:
    """Loses datagrams in bursts: the Gilbert-Elliott model, whose good state loses nothing."""

    loss: float
    begins: float
    ends: float
    random: Random
    bad: bool = False

    def apply(self, packet: Packet) -> Sequence[Packet]:
        self.bad = self.random.random() >= self.ends if self.bad else self.random.random() < self.begins
        lost = self.random.random() < self.loss
        return () if self.bad and lost else (packet,)


@dataclass(frozen=True, slots=True)
class Delay:
    """Delays each datagram; a later one with a shorter delay overtakes it."""

    seconds_min: float
    seconds_max: float
    random: Random

    def apply(self, packet: Packet) -> Sequence[Packet]:
        return (packet.later(self.random.uniform(self.seconds_min, self.seconds_max)),)


@dataclass(frozen=True, slots=True)
class Reorder:
    """Delays some datagrams so long that the next ones overtake them."""

    rate: float
    random: Random

    def apply(self, packet: Packet) -> Sequence[Packet]:
        return (packet.later(HELD_BACK_SECONDS) if self.random.random() < self.rate else packet,)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Delivers some datagrams twice, the second a moment later."""

    rate: float
    random: Random

    def apply(self, packet: Packet) -> Sequence[Packet]:
        if self.random.random() >= self.rate:
            return (packet,)
        return (packet, packet.later(self.random.uniform(0.0, HELD_BACK_SECONDS)))


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Truncates some datagrams, or replaces them by noise.

    Single-bit errors are not emulated: the checksums of 802.15.4 and UDP turn them into losses.
    """

    rate: float
    random: Random

    def apply(self, packet: Packet) -> Sequence[Packet]:
        if self.random.random() >= self.rate:
            return (packet,)
        size = len(packet.datagram)
        if self.random.random() < 0.5:
            # At most four bytes are left, so that no part can pass for a complete request.
            return (replace(packet, datagram=packet.datagram[: self.random.randrange(min(size, 4) + 1)]),)
        return (replace(packet, datagram=self.random.randbytes(size)),)


@dataclass(frozen=True, slots=True)
class MtuLimit:
    """Drops datagrams larger than the MTU."""

    bytes_max: int

    def apply(self, packet: Packet) -> Sequence[Packet]:
        return () if len(packet.datagram) > self.bytes_max else (packet,)


@dataclass(frozen=True, slots=True)
class LinkDown:
    """Loses everything during outages: pairs of begin and end, in seconds since the first report."""

    spans: Sequence[tuple[float, float]]

    def apply(self, packet: Packet) -> Sequence[Packet]:
        return () if any(begin <= packet.now < end for begin, end in self.spans) else (packet,)


@dataclass(slots=True)
class SharedChannel:
    """A half-duplex channel that all peers share: one datagram at a time, in either direction."""

    bits_per_second: int
    duty_cycle: float
    frame_bytes: int
    free_at: float = field(default=0.0)

    def apply(self, packet: Packet) -> Sequence[Packet]:
        size = len(packet.datagram) + FRAME_OVERHEAD_BYTES * frames_of(packet.datagram, self.frame_bytes)
        airtime = 8 * size / self.bits_per_second
        start = max(packet.now + packet.seconds, self.free_at)
        self.free_at = start + airtime / self.duty_cycle
        return (replace(packet, seconds=start + airtime - packet.now),)


def apply_all(faults: Sequence[LinkFault], packet: Packet) -> Sequence[Packet]:
    """Apply all faults to a packet, one after the other."""
    packets: Sequence[Packet] = (packet,)
    for fault in faults:
        packets = [after for before in packets for after in fault.apply(before)]
    return packets


def frames_of(datagram: bytes, frame_bytes: int) -> int:
    """Return the number of frames that a datagram is split into."""
    return max(1, ceil(len(datagram) / frame_bytes)) if frame_bytes else 1


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The faults in both directions."""

    requests: LinkFaultFactory
    answers: LinkFaultFactory


def link_profile(plan: LinkPlan) -> LinkProfile:
    """Return the profile of a radio link; all peers and both directions share one channel."""
    shared: list[LinkFault] = []
    if plan.bits_per_second:
        shared.append(SharedChannel(plan.bits_per_second, plan.duty_cycle, plan.frame_bytes))
    request_outages, answer_outages = _outages(plan)

    def requests(random: Random) -> Sequence[LinkFault]:
        return [*_chosen(plan, plan.request_loss, request_outages, random), *shared]

    def answers(random: Random) -> Sequence[LinkFault]:
        return [*_chosen(plan, plan.answer_loss, answer_outages, random), *shared]

    return LinkProfile(requests, answers)


def stream_profile(plan: LinkPlan) -> LinkProfile:
    """Return the profile of a stream: TCP turns loss into delay."""
    request_outages, answer_outages = _outages(plan)

    def both(spans: Sequence[tuple[float, float]]) -> Callable[[Random], Sequence[LinkFault]]:
        return lambda random: [
            *((LinkDown(spans),) if spans else ()),
            Delay(plan.delay_seconds, plan.delay_seconds + plan.jitter_seconds, random),
        ]

    return LinkProfile(both(request_outages), both(answer_outages))


def _chosen(plan: LinkPlan, loss: float, spans: Sequence[tuple[float, float]], random: Random) -> list[LinkFault]:
    """Return the faults that the plan configures; the others draw no random numbers."""
    delay_max = plan.delay_seconds + plan.jitter_seconds
    faults: list[tuple[object, LinkFault]] = [
        (plan.datagram_bytes_max, MtuLimit(plan.datagram_bytes_max)),
        (spans, LinkDown(spans)),
        (loss, Loss(loss, random, plan.frame_bytes)),
        (plan.burst_loss, BurstLoss(plan.burst_loss, plan.burst_begins, plan.burst_ends, random)),
        (plan.corrupted, Corrupt(plan.corrupted, random)),
        (plan.duplicated, Duplicate(plan.duplicated, random)),
        (delay_max, Delay(plan.delay_seconds, delay_max, random)),
        (plan.reordered, Reorder(plan.reordered, random)),
    ]
    return [fault for configured, fault in faults if configured]


def _outages(plan: LinkPlan) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Return begin and end of the outages of requests, and of those of answers."""
    spans = [(outage.at, outage.at + outage.seconds) for outage in plan.outages]
    both = [span for span, outage in zip(spans, plan.outages, strict=True) if not outage.answers_only]
    return both, spans
