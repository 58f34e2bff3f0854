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
