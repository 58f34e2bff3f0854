"""`oncegate-sim demo`: the whole path on this machine, with agent, job and broker failing at random moments."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from simulators.arguments import add_seed, make_parser, natural, positive
from simulators.payloads import SENSORS_MAX, KnownBy
from simulators.run.command import conduct
from simulators.run.options import RunOptions
from simulators.scenario import Fault, FaultKind, FaultTarget, FleetPlan, LinkPlan, Scenario, SensorKind

SENSORS, EVENTS, KILLS = 240, 10_000, 2
EVENTS_PER_SENSOR_MIN = 10
"""On average; with fewer, too few readings are equal to an earlier one of the same sensor."""
EVENTS_PER_SECOND = 150.0
"""Of all sensors together."""
REPORT_SECONDS_MIN = 0.5
"""Mean time between two reports of one sensor, if there are too few for EVENTS_PER_SECOND."""
MORE = 1.1
"""Reports come at random: so much more time, and there are hardly ever fewer events than were asked for."""
RUNS_SECONDS = {FaultTarget.AGENT: (5.0, 20.0), FaultTarget.JOB: (5.0, 20.0), FaultTarget.KAFKA: (5.0, 30.0)}
DOWN_SECONDS = {FaultTarget.AGENT: (0.2, 2.0), FaultTarget.JOB: (0.0, 1.0), FaultTarget.KAFKA: (3.0, 6.0)}
_EXAMPLES = """examples:
  make demo
  %(prog)s --seed 7          the same readings, losses and planned kills as any run with this seed
  %(prog)s --events 3000 --kills 1
  %(prog)s --sensors 1000 --minutes 10
"""


def main(arguments: Sequence[str], program: str) -> int:
    """Run the demo and return the exit status: 0 only where the oracle found no fault."""
    return conduct(parse(arguments, program), "demo")


def scenario(seed: int, sensors: int, events: int, kills: int = KILLS, seconds_min: float = 0.0) -> Scenario:
    """Return sensors of all kinds of identification behind a lossy radio link, and faults at random moments."""
    every_seconds = max(REPORT_SECONDS_MIN, sensors / EVENTS_PER_SECOND)
    return Scenario(
        name="demo",
        description="The whole path, with agent, job and broker failing at random moments.",
        seconds=max(seconds_min, MORE * events * every_seconds / sensors),
        fleets=(FleetPlan(SensorKind.COAP, sensors, every_seconds, known_by=tuple(KnownBy)),),
        link=LinkPlan(request_loss=0.1, answer_loss=0.2, delay_seconds=0.005, jitter_seconds=0.045),
        faults=(
            *_faults(seed, FaultTarget.AGENT, FaultKind.KILL, kills),
            *_faults(seed, FaultTarget.JOB, FaultKind.KILL, kills),
            *_faults(seed, FaultTarget.KAFKA, FaultKind.DOWN, 1),
        ),
    )


def _faults(seed: int, target: FaultTarget, kind: FaultKind, count: int) -> Iterator[Fault]:
    random, moment = Random(f"{seed} {target}"), 0.0
    for _ in range(count):
        moment += random.uniform(*RUNS_SECONDS[target])
        yield Fault(moment, target, kind, random.uniform(*DOWN_SECONDS[target]))


def parse(arguments: Sequence[str], program: str) -> RunOptions:
    """Parse the arguments; wrong usage prints an error and exits with status 2."""
    description = (
        "Run sensors over a bad radio, the agent, Kafka and the Spark job on this machine, with outages, and count "
        "lost and doubled events. Exit status 0: no fault was found."
    )
    parser = make_parser(program, description, _EXAMPLES)
    add = parser.add_argument
    add_seed(parser)
    each = f"or {EVENTS_PER_SENSOR_MIN} for each sensor if that is more"
    add("--events", type=positive, metavar="N", help=f"about so many events at least ({EVENTS}, {each})")
    add("--kills", type=natural, default=KILLS, metavar="N", help="kills of the agent and of the job (%(default)s)")
    fewer = f"{SENSORS}, or a tenth of --events if that is less"
    add("--sensors", type=positive, metavar="N", help=f"number of sensors, at most {SENSORS_MAX} ({fewer})")
    add("--minutes", type=natural, default=0, metavar="N", help="report for this time at least (%(default)s)")
    folder = Path("build/demo")
    add("--folder", type=Path, default=folder, metavar="PATH", help="emptied first (default: %(default)s)")
    given = parser.parse_args(arguments)
    sensors, events = _fleet(given.sensors, given.events, parser)
    plan = scenario(given.seed, sensors, events, given.kills, given.minutes * 60.0)
    return RunOptions(plan, given.seed, given.folder)


def _fleet(sensors: int | None, events: int | None, parser: argparse.ArgumentParser) -> tuple[int, int]:
    """Return the number of sensors and of events; exit where they do not fit together."""
    if sensors is None:
        events = EVENTS if events is None else events
        return min(SENSORS, max(1, events // EVENTS_PER_SENSOR_MIN)), events
    if sensors > SENSORS_MAX:
        parser.error(f"argument --sensors: at most {SENSORS_MAX} are possible")
    needed = sensors * EVENTS_PER_SENSOR_MIN
    if events is not None and events < needed:
        parser.error(f"argument --sensors: {sensors} sensors need --events {needed} at least, or no --events")
    return sensors, max(EVENTS, needed) if events is None else events


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m simulators.demo"))
