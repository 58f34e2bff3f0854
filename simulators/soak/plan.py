"""The scenario of a soak: sensors at a rate, a bad link with outages, and faults at random moments, from one seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from simulators.arguments import add_seed, make_parser, positive, seconds
from simulators.payloads import KnownBy, PayloadFormat
from simulators.scenario import (
    Fault,
    FaultKind,
    FaultTarget,
    FleetPlan,
    GatewayPlan,
    LanePlan,
    LinkOutage,
    LinkPlan,
    Scenario,
    SensorKind,
)

CLOCK_STEPS_SECONDS = (-14 * 86_400, -3_600, -1, 0, 0, 1, 3_600, 2 * 86_400)
LINK_RUNS_SECONDS = (60.0, 400.0)
LINK_DOWN_SECONDS = (2.0, 40.0)
FIRST_KILL_SECONDS_MAX = 60.0
"""In each part of a soak, agent, job and Kafka are each killed once within this time, or half of a shorter part."""

PACKS_MAX = (1, 1, 20, 100)
"""The largest packs of a soak: single events, above all, since they take most pages of the store."""
STORE_BYTES_MAX = ("1GiB", "48MiB", "24MiB")
"""Small stores fill with processed events, which are then removed for new ones, and with fingerprints."""

URGENT_LANE = LanePlan("urgent", 10, "*[0-3]")
"""For a quarter of the devices, by the last digit of their address."""

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """How often a service has a fault, and the faults with their weights and durations."""

    runs_seconds: Span
    kinds: Mapping[FaultKind, tuple[int, Span]]


_PATTERNS: Mapping[FaultTarget, _Pattern] = {
    FaultTarget.AGENT: _Pattern(
        (10.0, 60.0),
        {
            FaultKind.KILL: (4, (0.2, 5.0)),
            FaultKind.RESTART: (1, (0.2, 5.0)),
            FaultKind.FREEZE: (1, (1.0, 20.0)),
            FaultKind.DISK_FULL: (2, (2.0, 15.0)),
            FaultKind.CLOCK: (2, (0.0, 0.0)),
        },
    ),
    FaultTarget.JOB: _Pattern(
        (60.0, 200.0),
        {
            FaultKind.KILL: (4, (0.2, 15.0)),
            FaultKind.RESTART: (1, (0.2, 15.0)),
            FaultKind.FREEZE: (1, (1.0, 20.0)),
        },
    ),
    FaultTarget.KAFKA: _Pattern(
        (90.0, 300.0),
        {
            FaultKind.KILL: (2, (0.2, 20.0)),
            FaultKind.DOWN: (2, (20.0, 90.0)),
            FaultKind.FREEZE: (1, (1.0, 15.0)),
        },
    ),
}


def scenario(
    seed: int, seconds: float, part_seconds: float, events_per_second: float, *, lanes: bool = False
) -> Scenario:
    """Return the scenario; its faults are those of each part of the time, and end with the part."""
    sizes = Random(f"{seed} sizes")
    gateway = GatewayPlan(
        clock="kernel", lanes=(URGENT_LANE,) if lanes else (), store_max_bytes=sizes.choice(STORE_BYTES_MAX)
    )
    starts = [number * part_seconds for number in range(max(1, round(seconds / part_seconds)))]
    faults = [fault for start in starts for fault in _faults(seed, start, min(part_seconds, seconds - start))]
    return Scenario(
        name="soak",
        description="The whole path for hours, with random faults.",
        seconds=seconds,
        fleets=tuple(_fleets(events_per_second, sizes.choice(PACKS_MAX))),
        link=LinkPlan(
            request_loss=0.03,
            answer_loss=0.1,
            burst_loss=0.8,
            delay_seconds=0.005,
            jitter_seconds=0.03,
            reordered=0.02,
            duplicated=0.03,
            corrupted=0.01,
            outages=tuple(_outages(Random(f"{seed} link"), seconds)),
        ),
        gateway=gateway,
        faults=tuple(faults),
    )


def _fleets(events_per_second: float, pack_max: int) -> Iterator[FleetPlan]:
    # No sleepy sensors: after a checkpoint they would report their backlog at once, under one Message ID and Token, and
    # take a late answer for that of the next request (docs/sensors.md).
    def fleet(kind: SensorKind, share: float, every_seconds: float, **more: object) -> FleetPlan:
        sensors = max(1, round(events_per_second * share * every_seconds))
        return FleetPlan(kind, sensors, every_seconds, **more)  # type: ignore[arg-type]

    yield fleet(SensorKind.COAP, 0.70, 2.0, known_by=tuple(KnownBy))
    yield fleet(SensorKind.COAP, 0.03, 4.0, formats=(PayloadFormat.JSON, PayloadFormat.CBOR), block_bytes=64)
    yield fleet(SensorKind.STORE_AND_FORWARD, 0.22, max(0.5, 2.0 / pack_max), pack_max=pack_max)
    yield fleet(SensorKind.NON_CONFIRMABLE, 0.05, 4.0)


def _faults(seed: int, start: float, seconds: float) -> Iterator[Fault]:
    for target, pattern in _PATTERNS.items():
        random = Random(f"{seed} {target} {start:g}")
        moment = random.uniform(0.0, min(FIRST_KILL_SECONDS_MAX, seconds / 2))
        kind = FaultKind.KILL
        while moment < seconds:
            _, span = pattern.kinds[kind]
            step = random.choice(CLOCK_STEPS_SECONDS) if kind is FaultKind.CLOCK else 0
            yield Fault(start + moment, target, kind, random.uniform(*span), float(step))
            moment += random.uniform(*pattern.runs_seconds)
            (kind,) = random.choices(list(pattern.kinds), [weight for weight, _ in pattern.kinds.values()])


def _outages(random: Random, seconds: float) -> Iterator[LinkOutage]:
    moment = random.uniform(*LINK_RUNS_SECONDS)
    while moment < seconds:
        outage = LinkOutage(moment, random.uniform(*LINK_DOWN_SECONDS), answers_only=random.random() < 0.5)
        yield outage
        moment += outage.seconds + random.uniform(*LINK_RUNS_SECONDS)


_EXAMPLES = """examples:
  make soak HOURS=6
  %(prog)s --hours 0.5 --seed 7
  %(prog)s --hours 2 --delivery exactly-once --lanes
  %(prog)s --hours 8 --keep docs/benchmarks/soak.json
"""


EXACTLY_ONCE = "exactly-once"
DELIVERIES = ("at-least-once", EXACTLY_ONCE)
"""At most once has no receipts, and may lose events."""


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """The options of a soak."""

    seed: int
    hours: float
    events_per_second: int
    checkpoint_minutes: float
    delivery: str
    lanes: bool
    """Whether the gateway has a second lane, for a quarter of the devices."""
    folder: Path
    keep: Path | None
    """The file to which the result is added."""

    @property
    def seconds(self) -> float:
        """How long the sensors report, checkpoints not included."""
        return self.hours * 3600

    @property
    def checkpoint_seconds(self) -> float:
        """The time between two checkpoints."""
        return min(self.checkpoint_minutes * 60, self.seconds)


def parse(arguments: Sequence[str], program: str) -> SoakOptions:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    parser = make_parser(
        program,
        (
            "Run sensors over a bad link, the agent, Kafka and the Spark job on this machine for hours, with random "
            "faults, and compare all evidence at checkpoints. Exit status 0: no fault was found; 1: one was, or there "
            "is no verdict; 2: wrong usage; 130: interrupted."
        ),
        _EXAMPLES,
    )
    add = parser.add_argument
    add("--hours", type=seconds, required=True, metavar="N", help="how long the sensors report, such as 0.5")
    add_seed(parser)
    add("--rate", dest="events_per_second", type=positive, default=80, metavar="N", help="events/s (%(default)s)")
    add(
        "--checkpoint",
        dest="checkpoint_minutes",
        type=seconds,
        default=15.0,
        metavar="MINUTES",
        help="time between two checkpoints (%(default)g)",
    )
    add("--delivery", choices=DELIVERIES, default=DELIVERIES[0], help="the gateway's delivery mode (%(default)s)")
    add("--lanes", action="store_true", help="a second lane, for a quarter of the devices")
    add("--folder", type=Path, default=Path("build/soak"), metavar="PATH", help="emptied first (%(default)s)")
    add("--keep", type=Path, metavar="FILE", help="add the result to this file, and update the page beside it")
    given = parser.parse_args(arguments)
    if not given.hours or not given.checkpoint_minutes:
        parser.error("--hours and --checkpoint: expected more than 0")
    return SoakOptions(**vars(given))
