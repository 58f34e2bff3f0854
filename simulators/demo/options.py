"""The command line and the parameters of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulators.arguments import add_seed, make_parser, natural, positive, seed_of
from simulators.payloads import KnownBy
from simulators.scenario import FleetPlan, GatewayPlan, LinkPlan, Scenario, SensorKind
from simulators.sensors.endpoint import Timing

SENSORS = 240
EVENTS_PER_SECOND = 150.0
REQUEST_LOSS = 0.10
ANSWER_LOSS = 0.20
DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 0.005, 0.050
FASTER = 10
"""Divisor of the sensors' own times: ACK_TIMEOUT is 0.2 s instead of 2 s, and so on."""
TIMING = Timing().faster(FASTER)
EQUAL_READINGS_SHARE_MIN = 0.30
ALWAYS = 1e9
"""The sensors report until there are enough events, not for a fixed time."""
SCENARIO = Scenario(
    name="demo",
    description="The whole path, with processes killed at random.",
    seconds=ALWAYS,
    fleets=(FleetPlan(SensorKind.COAP, SENSORS, SENSORS / EVENTS_PER_SECOND, known_by=tuple(KnownBy)),),
    speed=FASTER,
    link=LinkPlan(
        request_loss=REQUEST_LOSS,
        answer_loss=ANSWER_LOSS,
        delay_seconds=DELAY_SECONDS_MIN,
        jitter_seconds=DELAY_SECONDS_MAX - DELAY_SECONDS_MIN,
    ),
    gateway=GatewayPlan(),
)

_EXAMPLES = """examples:
  make demo
  %(prog)s --seed 7          the same readings, losses and planned kills as any run with this seed
  %(prog)s --events 3000 --kills 1
  %(prog)s --minutes 10
"""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo."""

    seed: int
    events_min: int = 10_000
    kills: int = 2
    """How often the agent and the job are each killed."""
    folder: Path = Path("build/demo")
    seconds_min: float = 0.0
    """The sensors report for this time at least, and until there are enough events."""


def parse(arguments: Sequence[str], program: str) -> DemoOptions:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    parser = make_parser(
        program,
        (
            "Run sensors over a bad radio, the agent, Kafka and the Spark job on this machine, with "
            "outages, and count lost and doubled events. Exit status 0: no fault was found."
        ),
        _EXAMPLES,
    )
    defaults = DemoOptions(seed=0)
    add = parser.add_argument
    add_seed(parser)
    add(
        "--events",
        type=positive,
        default=defaults.events_min,
        metavar="N",
        help="smallest number of events (%(default)s)",
    )
    add(
        "--kills",
        type=natural,
        default=defaults.kills,
        metavar="N",
        help="kills of the agent and of the job (%(default)s)",
    )
    add("--minutes", type=natural, default=0, metavar="N", help="report for this time at least (%(default)s)")
    add("--folder", type=Path, default=defaults.folder, metavar="PATH", help="emptied first (default: %(default)s)")
    given = parser.parse_args(arguments)
    return DemoOptions(
        seed=seed_of(given),
        events_min=given.events,
        kills=given.kills,
        folder=given.folder,
        seconds_min=given.minutes * 60.0,
    )
