"""The weather on a link: the faults in both directions, from a scenario's plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from simulators.link.faults import (
    Bursts,
    Channel,
    Corrupt,
    Dead,
    Delay,
    Duplicate,
    Fault,
    Faults,
    Loss,
    Reorder,
    TooLarge,
)
from simulators.scenario import LinkPlan


@dataclass(frozen=True, slots=True)
class Weather:
    """The faults in both directions."""

    requests: Faults
    answers: Faults


CLEAR = Weather(lambda _: (), lambda _: ())


def weather(plan: LinkPlan) -> Weather:
    """Make the weather of a plan; the airtime is one channel for all peers and both directions."""
    shared: list[Fault] = []
    if plan.bits_per_second:
        shared.append(Channel(plan.bits_per_second, plan.duty_cycle, plan.frame_bytes))
    dead = [(away.at, away.at + away.seconds) for away in plan.outages if not away.answers_only]
    deaf = [(away.at, away.at + away.seconds) for away in plan.outages]

    def requests(random: Random) -> Sequence[Fault]:
        return [*_chosen(plan, plan.request_loss, dead, random), *shared]

    def answers(random: Random) -> Sequence[Fault]:
        return [*_chosen(plan, plan.answer_loss, deaf, random), *shared]

    return Weather(requests, answers)


def line(plan: LinkPlan) -> Weather:
    """Make the weather of a stream: TCP hides loss, so that time alone is left of it."""
    dead = [(away.at, away.at + away.seconds) for away in plan.outages if not away.answers_only]
    deaf = [(away.at, away.at + away.seconds) for away in plan.outages]

    def both(spans: Sequence[tuple[float, float]]) -> Callable[[Random], Sequence[Fault]]:
        return lambda random: [
            *((Dead(spans),) if spans else ()),
            Delay(plan.delay_seconds, plan.delay_seconds + plan.jitter_seconds, random),
        ]

    return Weather(both(dead), both(deaf))


def _chosen(plan: LinkPlan, loss: float, spans: Sequence[tuple[float, float]], random: Random) -> list[Fault]:
    """Return the faults that the plan asks for; what it does not ask for takes no randomness."""
    delay_max = plan.delay_seconds + plan.jitter_seconds
    wanted: list[tuple[object, Fault]] = [
        (plan.datagram_bytes_max, TooLarge(plan.datagram_bytes_max)),
        (spans, Dead(spans)),
        (loss, Loss(loss, random, plan.frame_bytes)),
        (plan.burst_loss, Bursts(plan.burst_loss, plan.burst_begins, plan.burst_ends, random)),
        (plan.corrupted, Corrupt(plan.corrupted, random)),
        (plan.duplicated, Duplicate(plan.duplicated, random)),
        (delay_max, Delay(plan.delay_seconds, delay_max, random)),
        (plan.reordered, Reorder(plan.reordered, random)),
    ]
    return [fault for asked, fault in wanted if asked]
