"""What sensors, topic and table have of schedules is a behaviour of the model of the path, as that of field tests."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path

import pytest

from simulators import ledger
from simulators.validate.command import fitting
from simulators.validate.traces import Step, Trace, collect
from tests.schedules import replaced
from tests.schedules.world import World, records_of, rows_of

SEEDS = range(1, 15)
SECONDS_MAX = 600


def traces() -> list[Trace]:
    """Return the traces of devices; none of schedules with lanes, or whose card or topic has lost events."""
    command = (sys.executable, "-m", "tests.schedules.test_traces", *map(str, SEEDS))
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS_MAX)
    return [[Step(*step) for step in trace] for line in done.stdout.splitlines() for trace in json.loads(line)]


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


def main(*seeds: str) -> None:
    """Run schedules, each in a process of its own, and print a line of JSON for each."""
    replaced.places()
    for seed in map(int, seeds):
        if not (process := os.fork()):
            print(json.dumps([[astuple(step) for step in trace] for trace in seen(seed)]), flush=True)
            os._exit(0)  # what was killed is not unwound
        assert os.waitpid(process, 0)[1] == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
