"""What sensors, topic and table have of schedules is a behaviour of the model of the path, as that of field tests."""

import json
import os
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path

import pytest

from simulators import ledger
from simulators.validate.command import fitting
from simulators.validate.traces import Step, Trace, collect
from tests.schedules.world import World, records_of, rows_of
from tests.support.commands import output_of

SEEDS = range(1, 15)
SECONDS_MAX = 600


def traces() -> list[Trace]:
    """Return the traces of devices; none of schedules with lanes, or whose card or topic has lost events."""
    command = (sys.executable, "-m", "tests.schedules.test_traces")  # a process each: what is killed is not unwound
    found = (output_of(*command, str(seed), seconds_max=SECONDS_MAX) for seed in SEEDS)
    return [[Step(*step) for step in trace] for text in found for trace in json.loads(text)]


@pytest.mark.heavy
@pytest.mark.guarantee(0)
def test_what_is_seen_of_schedules_with_kills_fits_the_model() -> None:
    found = traces()
    assert sum(step.event == "acked" for trace in found for step in trace) > 100
    assert fitting(found) == [True] * len(found)


def seen(seed: int) -> list[Trace]:
    """Run a schedule; return the traces of its devices."""
    with tempfile.TemporaryDirectory(prefix="oncegate-trace-") as folder:
        world = World(seed, Path(folder), pytest.MonkeyPatch(), None)
        world.run()
        if world.has_lanes or world.cluster.has_lost or world.faults.has_exchanged_card:
            return []
        lines = ledger.read(Path(folder) / "ledger.jsonl")
        return [*collect(lines, records_of(world.cluster), rows_of(world.job.table)).by_device.values()]


if __name__ == "__main__":
    print(json.dumps([[astuple(step) for step in trace] for trace in seen(int(sys.argv[1]))]), flush=True)
    os._exit(0)
