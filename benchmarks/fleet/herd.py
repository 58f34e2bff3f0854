"""The return of a whole fleet at once, by the product's own backoff and pauses, in simulated time.

The cluster is a queue: so many connections a second are set up, and so many wait; one that finds no place is tried
again by TCP after 1, 3 and 7 s (RFC 6298 doubles the first second). A gateway opens the connections of a session one
after the other. Where one takes longer than the client waits, the session has failed, and the gateway waits by its
backoff.

One of ten gateways is simulated, with a tenth of the rate and of the places, and the counts are multiplied by ten.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from agent.backoff import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, Backoff
from agent.forward.kafka.client import REQUEST_SECONDS_MAX
from agent.forward.receipts.poller import pauses
from benchmarks.report import Figure

SEED: Final = 5
SCALE: Final = 10
"""Gateways of the fleet for each that is simulated."""
SESSION_CONNECTIONS: Final = 10
"""Of one gateway, with six brokers: docs/kafka.md, Connections."""
RESENDS: Final = (0.0, 1.0, 3.0, 7.0)
"""When TCP sends the first packet of a connection again, in seconds since the first time."""
WAITING_MAX: Final = 660
"""Of six brokers: the backlog of a listener (50) and 20 for each of three network threads."""
RATES: Final = (2_000, 6_000, 20_000)
"""Connections a second that the cluster sets up."""
OUTAGE_SECONDS: Final = 600.0
POLL_SECONDS: Final = 30.0
LIMIT_SECONDS: Final = 7_200.0


class Waits(Protocol):
    """The waits between attempts."""

    def next_seconds(self) -> float:
        """Return the next wait."""


class WithoutJitter:
    """The product's backoff without its random part."""

    def __init__(self) -> None:
        self._seconds = BACKOFF_SECONDS_FIRST

    def next_seconds(self) -> float:
        """Return the next wait."""
        seconds = self._seconds
        self._seconds = min(2 * seconds, BACKOFF_SECONDS_MAX)
        return seconds


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a fleet came back."""

    peak: int
    """Connections that were tried within the worst second."""
    half: float
    """Seconds until half of the gateways had a session."""
    whole: float
    """Seconds until all had one."""
    failed: int
    """Sessions that failed."""
    wasted: float
    """The share of the connections set up that belonged to sessions that failed."""


class Cluster:
    """Sets connections up at a rate, one after the other; a bounded number of them waits."""

    def __init__(self, rate: float, waiting_max: float) -> None:
        self._each = 1 / rate
        self._wait_max = waiting_max / rate
        self._free_at = 0.0

    def accept(self, now: float) -> float | None:
        """Return when a connection that is tried now is set up; None where there is no place."""
        if self._free_at - now > self._wait_max:
            return None
        self._free_at = max(self._free_at, now) + self._each
        return self._free_at


def come_back(starts: list[float], waits: Callable[[Random], Waits], rate: float) -> Recovery:
    """Return how gateways come back that begin at these times, in seconds; `rate` is that of the whole cluster."""
    cluster = Cluster(rate / SCALE, WAITING_MAX / SCALE)
    tried, done, failed, wasted, used = Counter[int](), list[float](), 0, 0, 0
    backoffs = [waits(Random(SEED + number)) for number in range(len(starts))]
    # time, gateway, connection of the session, resend of TCP
    queue = [(at, number, 0, 0) for number, at in enumerate(starts)]
    heapq.heapify(queue)
    while queue and queue[0][0] < LIMIT_SECONDS:
        now, number, connection, resend = heapq.heappop(queue)
        tried[int(now)] += 1
        ready = cluster.accept(now)
        if ready is not None:
            used += 1
            if connection + 1 == SESSION_CONNECTIONS:
                done.append(ready)
            else:
                heapq.heappush(queue, (ready, number, connection + 1, 0))
        elif resend + 1 < len(RESENDS):
            heapq.heappush(queue, (now + RESENDS[resend + 1] - RESENDS[resend], number, connection, resend + 1))
        else:
            failed += 1
            wasted += connection
            given_up = now + REQUEST_SECONDS_MAX - RESENDS[-1]
            heapq.heappush(queue, (given_up + backoffs[number].next_seconds(), number, 0, 0))
    done.sort()
    whole = done[-1] if len(done) == len(starts) else float("inf")
    half = done[len(starts) // 2] if len(done) > len(starts) // 2 else float("inf")
    return Recovery(SCALE * max(tried.values()), half, whole, SCALE * failed, wasted / used)


def after_blackout(gateways: int, seconds: float) -> list[float]:
    """Return the starts of gateways that get power at once, and boot within so many seconds."""
    random = Random(SEED)
    return [random.uniform(0, seconds) for _ in range(gateways // SCALE)]


def after_outage(gateways: int, waits: Callable[[Random], Waits]) -> list[float]:
    """Return the first attempts after an outage of all brokers, during which every attempt is refused at once."""
    random, starts = Random(SEED), []
    for number in range(gateways // SCALE):
        backoff, at = waits(Random(SEED + number)), random.uniform(-OUTAGE_SECONDS - 1, -OUTAGE_SECONDS)
        while at < 0:
            at += backoff.next_seconds()
        starts.append(at)
    return starts


def poll_peak(gateways: int, law: Callable[[Random], Iterator[float]], seconds: float) -> int:
    """Return the most polls within a second, of gateways that start within one."""
    counted, random = Counter[int](), Random(SEED)
    for number in range(gateways // SCALE):
        at = random.random()
        for pause in law(Random(SEED + number)):
            at += pause
            if at >= seconds:
                break
            counted[int(at)] += 1
    return SCALE * max(counted.values())


def figures(gateways: int) -> list[Figure]:
    """Return the figures of all cases."""
    found = []
    laws: dict[str, Callable[[Random], Waits]] = {"jitter": Backoff, "no jitter": lambda _: WithoutJitter()}
    for name, waits in laws.items():
        cases = {
            "blackout, booted within 1 s": after_blackout(gateways, 1.0),
            "blackout, booted within 30 s": after_blackout(gateways, 30.0),
            "brokers away for 10 minutes": after_outage(gateways, waits),
        }
        for case, starts in cases.items():
            for rate in RATES:
                outcome = come_back(starts, waits, rate)
                details = {
                    "half_seconds": outcome.half,
                    "at_least_seconds": gateways * SESSION_CONNECTIONS / rate,
                    "peak_per_second": outcome.peak,
                    "failed_sessions": outcome.failed,
                    "wasted_share": outcome.wasted,
                }
                title = f"{case}, {name}, {rate:,} connections/s"
                found.append(Figure(title, outcome.whole, "s", details=details))
                print(title, outcome, flush=True)
    for name, law in (
        ("the product's pauses", lambda random: pauses(random, POLL_SECONDS)),
        ("the same without the first one", _without_first),
    ):
        peak = poll_peak(gateways, law, 20 * POLL_SECONDS)
        found.append(Figure(f"polls at the peak after a blackout, {name}", peak, "polls/s"))
    return found


def _without_first(random: Random) -> Iterator[float]:
    waits = pauses(random, POLL_SECONDS)
    next(waits)
    yield from waits
