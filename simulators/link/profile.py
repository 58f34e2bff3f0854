"""Link profiles: the faults in both directions, from a scenario's plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from simulators.link.faults import (
    BurstLoss,
    Corrupt,
    Delay,
    Duplicate,
    LinkDown,
    LinkFault,
    LinkFaultFactory,
    Loss,
    MtuLimit,
    Reorder,
    SharedChannel,
)
from simulators.scenario import LinkPlan


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The faults in both directions."""

    requests: LinkFaultFactory
    answers: LinkFaultFactory


NO_FAULTS = LinkProfile(lambda _: (), lambda _: ())


def link_profile(plan: LinkPlan) -> LinkProfile:
    """Return the profile of a radio link; all peers and both directions share one channel."""
    shared: list[LinkFault] = []
    if plan.bits_per_second:
        shared.append(SharedChannel(plan.bits_per_second, plan.duty_cycle, plan.frame_bytes))
    dead = [(away.at, away.at + away.seconds) for away in plan.outages if not away.answers_only]
    deaf = [(away.at, away.at + away.seconds) for away in plan.outages]

    def requests(random: Random) -> Sequence[LinkFault]:
        return [*_chosen(plan, plan.request_loss, dead, random), *shared]

    def answers(random: Random) -> Sequence[LinkFault]:
        return [*_chosen(plan, plan.answer_loss, deaf, random), *shared]

    return LinkProfile(requests, answers)


def stream_profile(plan: LinkPlan) -> LinkProfile:
    """Return the profile of a stream: TCP turns loss into delay."""
    dead = [(away.at, away.at + away.seconds) for away in plan.outages if not away.answers_only]
    deaf = [(away.at, away.at + away.seconds) for away in plan.outages]

    def both(spans: Sequence[tuple[float, float]]) -> Callable[[Random], Sequence[LinkFault]]:
        return lambda random: [
            *((LinkDown(spans),) if spans else ()),
            Delay(plan.delay_seconds, plan.delay_seconds + plan.jitter_seconds, random),
        ]

    return LinkProfile(both(dead), both(deaf))


def _chosen(plan: LinkPlan, loss: float, spans: Sequence[tuple[float, float]], random: Random) -> list[LinkFault]:
    """Return the faults that the plan configures; the others draw no random numbers."""
    delay_max = plan.delay_seconds + plan.jitter_seconds
    wanted: list[tuple[object, LinkFault]] = [
        (plan.datagram_bytes_max, MtuLimit(plan.datagram_bytes_max)),
        (spans, LinkDown(spans)),
        (loss, Loss(loss, random, plan.frame_bytes)),
        (plan.burst_loss, BurstLoss(plan.burst_loss, plan.burst_begins, plan.burst_ends, random)),
        (plan.corrupted, Corrupt(plan.corrupted, random)),
        (plan.duplicated, Duplicate(plan.duplicated, random)),
        (delay_max, Delay(plan.delay_seconds, delay_max, random)),
        (plan.reordered, Reorder(plan.reordered, random)),
    ]
    return [fault for asked, fault in wanted if asked]
