"""The command line and the parameters of the demo."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulators.arguments import add_seed, make_parser, natural, positive, seed_of
from simulators.payloads import SENSORS_MAX, KnownBy
from simulators.scenario import FleetPlan, GatewayPlan, LinkPlan, Scenario, SensorKind
from simulators.sensors.endpoint import Timing

SENSORS = 240
EVENTS = 10_000
EVENTS_PER_SENSOR_MIN = 10
"""On average; with fewer, too few readings are equal to an earlier one of the same sensor."""
EVENTS_PER_SECOND = 150.0
"""Of all sensors together."""
REPORT_SECONDS_MIN = 0.5
"""Average time between two reports of one sensor, if there are too few for EVENTS_PER_SECOND."""
REQUEST_LOSS = 0.10
ANSWER_LOSS = 0.20
DELAY_SECONDS_MIN, DELAY_SECONDS_MAX = 0.005, 0.050
FASTER = 10
"""Divisor of the sensors' own times: ACK_TIMEOUT is 0.2 s instead of 2 s, and so on."""
TIMING = Timing().faster(FASTER)
EQUAL_READINGS_SHARE_MIN = 0.30
ALWAYS = 1e9
"""The sensors report until there are enough events, not for a fixed time."""
_EXAMPLES = """examples:
  make demo
  %(prog)s --seed 7          the same readings, losses and planned kills as any run with this seed
  %(prog)s --events 3000 --kills 1
  %(prog)s --sensors 1000 --minutes 10
"""


def scenario(sensors: int) -> Scenario:
    """Return the demo's scenario: these sensors, of all kinds of identification, behind a lossy radio link."""
    seconds = max(REPORT_SECONDS_MIN, sensors / EVENTS_PER_SECOND)
    return Scenario(
        name="demo",
        description="The whole path, with processes killed at random.",
        seconds=ALWAYS,
        fleets=(FleetPlan(SensorKind.COAP, sensors, seconds, known_by=tuple(KnownBy)),),
        speed=FASTER,
        link=LinkPlan(
            request_loss=REQUEST_LOSS,
            answer_loss=ANSWER_LOSS,
            delay_seconds=DELAY_SECONDS_MIN,
            jitter_seconds=DELAY_SECONDS_MAX - DELAY_SECONDS_MIN,
        ),
        gateway=GatewayPlan(),
    )


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo."""

    seed: int
    events_min: int = EVENTS
    kills: int = 2
    """How often the agent and the job are each killed."""
    folder: Path = Path("build/demo")
    seconds_min: float = 0.0
    """The sensors report for this time at least, and until there are enough events."""
    sensors: int = SENSORS


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
        metavar="N",
        help=f"smallest number of events ({EVENTS}, or {EVENTS_PER_SENSOR_MIN} for each sensor if that is more)",
    )
    add(
        "--kills",
        type=natural,
        default=defaults.kills,
        metavar="N",
        help="kills of the agent and of the job (%(default)s)",
    )
    add(
        "--sensors",
        type=positive,
        metavar="N",
        help=f"number of sensors, at most {SENSORS_MAX} ({SENSORS}, or a tenth of --events if that is less)",
    )
    add("--minutes", type=natural, default=0, metavar="N", help="report for this time at least (%(default)s)")
    add("--folder", type=Path, default=defaults.folder, metavar="PATH", help="emptied first (default: %(default)s)")
    given = parser.parse_args(arguments)
    sensors, events = _fleet(given.sensors, given.events, parser)
    return DemoOptions(
        seed=seed_of(given),
        events_min=events,
        kills=given.kills,
        folder=given.folder,
        seconds_min=given.minutes * 60.0,
        sensors=sensors,
    )


def _fleet(sensors: int | None, events: int | None, parser: argparse.ArgumentParser) -> tuple[int, int]:
    """Return the number of sensors and the smallest number of events; exit where they do not fit together."""
    if sensors is None:
        events = EVENTS if events is None else events
        return min(SENSORS, max(1, events // EVENTS_PER_SENSOR_MIN)), events
    if sensors > SENSORS_MAX:
        parser.error(f"argument --sensors: at most {SENSORS_MAX} are possible")
    needed = sensors * EVENTS_PER_SENSOR_MIN
    if events is not None and events < needed:
        parser.error(f"argument --sensors: {sensors} sensors need --events {needed} at least, or no --events")
    return sensors, max(EVENTS, needed) if events is None else events
