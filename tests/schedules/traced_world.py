"""Schedules whose agent and job are traced: one device, and kills without losses of Kafka or of the card.

    python -m tests.schedules.traced_world SEED [FAULT]...

prints the lines as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

from agent.config.settings import Settings, StoreSettings
from simulators.payloads import KnownBy
from simulators.scenario import FleetPlan, SensorKind
from tests.schedules import gateway, world
from tests.schedules.faults import FAULT_SECONDS, Faults
from tests.schedules.mutants import MUTANTS
from tests.schedules.runs import MEMORY_FILES
from tests.schedules.traces import Line
from tests.schedules.tracing import Tracer
from tests.schedules.world import World

EVERY_SECONDS: Final = 3.0
"""Mean time between two events."""
KEEP_SECONDS: Final = 2.0
"""After which a processed event is purged, so that the trace has it."""
SECONDS_MAX: Final = 300


class ChosenFaults(Faults):
    """The given faults, at random moments."""

    def __init__(self, schedule: World, random: Random, names: Sequence[str]) -> None:
        super().__init__(schedule, random)
        self._names = names

    def plan(self) -> None:
        """Schedule each of the faults."""
        faults = dict(self._all())
        for name in self._names:
            at = self._random.uniform(0.0, FAULT_SECONDS)
            self.planned.append(f"{name} at {at:.3f} s")
            self._world.scheduler.call(at, name, faults[name])
        self._pending += 1
        self._world.scheduler.call(FAULT_SECONDS + 5.0, "all is well", self._end)


class TracedWorld(World):
    """One CoAP sensor, which sends one event at a time until it has its ack."""

    def __init__(
        self, seed: int, folder: Path, patch: pytest.MonkeyPatch, tracer: Tracer, names: Sequence[str]
    ) -> None:
        settings_of = gateway.settings_of
        patch.setattr(gateway, "settings_of", lambda *arguments: _purging(settings_of(*arguments)))
        patch.setattr(world, "LANES_SHARE", 0.0)
        patch.setattr(world, "EXACTLY_ONCE_SHARE", 0.0)
        super().__init__(seed, folder, patch, tracer.look)
        self.faults = ChosenFaults(self, Random(f"faults {seed}"), names)
        tracer.begin(self.cluster, self.job, patch)

    def _plan_fleets(self) -> list[FleetPlan]:
        return [FleetPlan(SensorKind.COAP, 1, EVERY_SECONDS, known_by=(KnownBy.ID,), tries=10_000)]


def trace(seed: int, *faults: str, mutant: str = "") -> list[Line]:
    """Run a schedule in a process of its own; return its lines."""
    command = [sys.executable, "-m", "tests.schedules.traced_world", str(seed), mutant, *faults]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_MAX)
    return [_line(**fields) for fields in json.loads(done.stdout)]


def _line(event: str, position: int, **sets: Sequence[int]) -> Line:
    return Line(event, position, **{name: frozenset(found) for name, found in sets.items()})


def _purging(settings: Settings) -> Settings:
    return replace(settings, store=StoreSettings(keep_processed_seconds=KEEP_SECONDS))


def main(seed: str, mutant: str, *faults: str) -> None:
    """Run a schedule, and print its lines."""
    if mutant:
        MUTANTS[mutant]()
    folder = Path(tempfile.mkdtemp(prefix="oncegate-trace-", dir=MEMORY_FILES if MEMORY_FILES.is_dir() else None))
    tracer = Tracer()
    try:
        result = TracedWorld(int(seed), folder, pytest.MonkeyPatch(), tracer, faults).run()
    finally:
        shutil.rmtree(folder)
    tracer.settle()
    print(*result.faults, *result.wrong, sep="\n", file=sys.stderr)
    print(json.dumps([asdict(line) for line in tracer.lines], default=sorted))
    sys.stdout.flush()
    os._exit(0)  # what was killed is not unwound


if __name__ == "__main__":
    main(*sys.argv[1:])
