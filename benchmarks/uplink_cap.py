"""Measure the cap of the uplink: what an agent with a backlog sends, and the acks that its sensors receive meanwhile.

Each run has two agents at the same time, so that the load of the machine is the same for both: one with a cap, or
without one, before a real broker, and a second whose broker cannot be reached. Both have a copy of the same backlog and
as many sensors, which send confirmable CoAP requests at a constant rate. A recorder in front of the broker counts the
bytes of the requests. Acks count only as long as there is a backlog.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from agent.store.layout import FILE_NAME
from agent.store.schema import database
from benchmarks import report
from benchmarks.report import Figure
from benchmarks.store_drain import STEP_SECONDS, Sensors, agent_on, delivered
from benchmarks.store_fill import fill
from benchmarks.thin_link.recorder import Recorder
from simulators.services import ports
from simulators.services.error import ServiceError
from simulators.services.kafka.broker import Broker, Listener

RATES: Final = (2_000, 20_000, 100_000)
BACKLOG: Final = 300_000
ROUNDS: Final = 2
SENSORS_PER_SECOND: Final = 200
SETTLING_SECONDS: Final = 8.0
MEASURED_SECONDS: Final = {2_000: 60.0, 20_000: 30.0, 100_000: 30.0}
UNCAPPED_SECONDS: Final = 15.0
START_SECONDS_MAX: Final = 120.0
PIECE_SECONDS: Final = 0.05
UNREACHABLE: Final = "127.0.0.1:1"
_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True)
class Acks:
    """The latency of the acks to sensors."""

    p50_ms: float
    p99_ms: float
    count: int


@dataclass(frozen=True, slots=True)
class CapRun:
    """The measurement of an agent, and of the one without an uplink beside it."""

    sent_per_second: float
    """Bytes of requests to the broker, after the start; 0 without a cap, where they are not counted."""
    acks: Acks
    twin_acks: Acks


@dataclass(slots=True)
class CapBench:
    """The broker, the recorder in front of it, and the store that each run begins with."""

    folder: Path
    broker: Broker
    recorder: Recorder
    filled: Path
    is_quick: bool

    def run(self, rate: int | None) -> CapRun:
        """Run two agents, the first one with a cap, None for none."""
        topic = f"cap.{next(_NUMBERS)}"
        self.broker.create_topics(topic)
        # The recorder and the sensors share an interpreter, so what has no cap does not pass through it.
        servers = self.broker.bootstrap_servers if rate is None else f"127.0.0.1:{self.recorder.port}"
        cap = "" if rate is None else f"bytes_per_second_max = {rate}"
        kafka = f'topic = "{topic}"\n'
        with (
            self._agent(self.folder / "twin", f'{kafka}bootstrap_servers = "{UNREACHABLE}"') as twin,
            self._agent(self.folder / "capped", f'{kafka}bootstrap_servers = "{servers}"\n{cap}') as sensors,
        ):
            return self._watch(sensors, twin, rate)

    @contextmanager
    def _agent(self, place: Path, kafka: str) -> Iterator[Sensors]:
        """Run an agent on a copy of the store; yield its sensors."""
        shutil.copytree(self.filled, place / "state")
        with agent_on(place, kafka) as (_, port), closing(Sensors(port, SENSORS_PER_SECOND)) as sensors:
            yield sensors
        shutil.rmtree(place)

    def _watch(self, sensors: Sensors, twin: Sensors, rate: int | None) -> CapRun:
        seconds = (UNCAPPED_SECONDS if rate is None else MEASURED_SECONDS[rate]) / (10 if self.is_quick else 1)
        with closing(database.open_for_reading(self.folder / "capped" / "state" / FILE_NAME)) as reader:
            give_up = time.monotonic() + START_SECONDS_MAX
            while not delivered(reader):
                if time.monotonic() > give_up:
                    raise ServiceError("nothing was delivered")
                _work(PIECE_SECONDS, sensors, twin)
            if rate is not None:
                _work(SETTLING_SECONDS, sensors, twin)
            acked, twin_acked = len(sensors.seconds), len(twin.seconds)
            start, before = time.monotonic(), self.recorder.sent_bytes()
            while (now := time.monotonic()) < start + seconds and delivered(reader) < BACKLOG:
                _work(PIECE_SECONDS, sensors, twin)
            sent = (self.recorder.sent_bytes() - before) / (now - start)
            if rate is not None and delivered(reader) >= BACKLOG:
                raise ServiceError("the backlog was sent before the end")
        return CapRun(0.0 if rate is None else sent, _acks(sensors.seconds[acked:]), _acks(twin.seconds[twin_acked:]))


def _work(seconds: float, *all_sensors: Sensors) -> None:
    """Send due events to all agents and receive their acks for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for sensors in all_sensors:
            sensors.step()
        time.sleep(STEP_SECONDS)


def _acks(seconds: list[float]) -> Acks:
    if len(seconds) < SENSORS_PER_SECOND:
        raise ServiceError(f"{len(seconds)} acks with a backlog are too few")
    return Acks(1_000 * median(seconds), 1_000 * quantiles(seconds, n=100)[98], len(seconds))


def figures(bench: CapBench, rounds: int) -> Iterator[Figure]:
    """Yield the figures of all rates."""
    by_rate: dict[int | None, list[CapRun]] = {}
    for number in range(rounds):
        rates = (None, *RATES)
        for rate in rates if number % 2 == 0 else reversed(rates):
            run = bench.run(rate)
            report.progress(f"{rate}: {run}")
            by_rate.setdefault(rate, []).append(run)
    for rate, runs in by_rate.items():
        name = f"at-least-once, {'no cap' if rate is None else f'cap of {rate:,} bytes/s'}"
        if rate is not None:
            yield report.middle(f"{name}, sent", [run.sent_per_second for run in runs], "bytes/s")
        yield report.middle(f"{name}, acks p50", [run.acks.p50_ms for run in runs], "ms")
        yield report.middle(f"{name}, acks p99", [run.acks.p99_ms for run in runs], "ms")
        p50s = [run.acks.p50_ms / run.twin_acks.p50_ms for run in runs]
        p99s = [run.acks.p99_ms / run.twin_acks.p99_ms for run in runs]
        yield report.middle(f"{name}, acks p50 by those without an uplink", p50s, "times")
        yield report.middle(f"{name}, acks p99 by those without an uplink", p99s, "times")


def main() -> int:
    """Measure everything, print the table, and write the JSON."""
    given = report.parser("uplink_cap", __doc__).parse_args()
    rounds = 1 if given.quick else ROUNDS
    own, advertised = ports.free(2)
    listener = Listener("PLAINTEXT", own, advertised, name="RECORDED")
    with report.folder() as folder:
        fill(folder / "filled", BACKLOG, BACKLOG)
        with Broker(folder / "kafka", listener) as broker, Recorder(advertised, own) as recorder:
            bench = CapBench(folder, broker, recorder, folder / "filled", given.quick)
            found = list(figures(bench, rounds))
    settings = {"rounds": rounds, "backlog": BACKLOG, "sensors_per_second": SENSORS_PER_SECOND}
    report.conclude("uplink_cap", found, is_kept=not given.quick, **settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
