"""SIGKILL at every step of a batch: exactly once keeps each label once, at most once never twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.config import load
from agent.config.lanes import DEFAULT_LANE
from agent.status import read_status
from agent.store.files.folders import store_folders
from agent.store.lanes.stores import lane_stores
from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs
from agent.store.schema import database, tables
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, label
from tests.agent.forward.delivery.self_killing_agent import BATCHES_MAX, EVENTS_PER_BATCH
from tests.agent.store.stores import HandClock, accept
from tests.support.agent_process import agent_process, configured
from tests.support.waiting import wait_for_count

SECONDS_PER_KILL_MAX = 20
EVENTS_A_COMMIT = 500
LANES = '[[forward.lanes]]\nname = "odd"\ndevice = "d[135]"\npriority = 0\n'
"""A lane that sends at the same time as the default lane."""

pytestmark = pytest.mark.kafka


KILLS = pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.heavy)])


@dataclass(frozen=True, slots=True)
class Lives:
    """The result of many processes of an agent, the last of which has forwarded everything."""

    labels: Set[tuple[str, int]]
    """Of all events that were stored."""
    seen: Counter[tuple[str, int]]
    """How often each is in the topic."""
    log: str
    maybe_lost: int


async def live_and_die(
    kafka: KafkaTopic, gateway: str, folder: Path, delivery: str, kills: int, lanes: str = ""
) -> Lives:
    """Kill an agent repeatedly, at random steps of its work; the last process finishes."""
    options = f'topic = "{kafka.topic}"\ndelivery = "{delivery}"\n{lanes}'
    configuration = configured(folder, options, gateway=gateway, coap="", http="", kafka=kafka.bootstrap_servers)
    clock = HandClock()
    async with lane_stores(load.load(configuration), clock) as stores:
        for first in range(0, kills * BATCHES_MAX * EVENTS_PER_BATCH, EVENTS_A_COMMIT):
            events = [Event(f"d{number % 7}", id=number, data={}) for number in range(first, first + EVENTS_A_COMMIT)]
            await accept(stores.intake, clock, *events)
    files = [one / FILE_NAME for one in store_folders(folder / "state").values()]
    labels = set().union(*(stored_labels(file) for file in files))

    seed = random.randrange(1 << 32)
    command = [
        sys.executable,
        "-m",
        "tests.agent.forward.delivery.self_killing_agent",
        str(configuration),
        str(kills),
        str(seed),
    ]
    seconds = 120 + kills * SECONDS_PER_KILL_MAX
    lives = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=seconds
    )
    print(f"seed={seed}", lives.stdout, lives.stderr[-5_000:])
    assert lives.returncode == 0
    assert lives.stdout.count("signal=9") == kills
    with agent_process(configuration) as agent:
        agent.start()
        wait_for_count(lambda: read_status(folder / "state", gateway).events.new, 0, "all is forwarded")
        agent.terminate()

    seen = Counter(label(one) for one in kafka.records())
    return Lives(labels, seen, lives.stderr, read_status(folder / "state", gateway).maybe_lost)


def stored_labels(store: Path) -> Set[tuple[str, int]]:
    with closing(database.open_for_reading(store)) as connection:
        epochs, end = Epochs.load(connection), tables.last_position(connection)
    labels = (epochs.label(position) for position in range(1, end + 1))
    return {(label.epoch, label.sequence) for label in labels}


@pytest.mark.heavy
@KILLS
async def test_each_label_is_there_once_whenever_the_agent_is_killed(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, kills: int
) -> None:
    lives = await live_and_die(kafka, gateway, tmp_path, "exactly-once", kills)

    assert Counter(lives.seen.values()) == Counter({1: len(lives.seen)})
    assert set(lives.seen) == lives.labels
    assert lives.log.count("recovered=") > 0


@pytest.mark.guarantee(4)
@KILLS
async def test_at_most_once_no_label_is_there_twice_and_none_is_missing_uncounted_whenever_the_agent_is_killed(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, kills: int
) -> None:
    lives = await live_and_die(kafka, gateway, tmp_path, "at-most-once", kills)

    missing = lives.labels - set(lives.seen)
    print(f"missing={len(missing)} maybe_lost={lives.maybe_lost}")
    assert set(lives.seen.values()) == {1}
    assert set(lives.seen) <= lives.labels
    assert len(missing) <= lives.maybe_lost <= kills * EVENTS_PER_BATCH


@pytest.mark.guarantee(4)
@pytest.mark.heavy
async def test_at_most_once_the_same_holds_with_two_lanes_that_send_at_the_same_time(
    kafka: KafkaTopic, gateway: str, tmp_path: Path
) -> None:
    kills = 40
    lives = await live_and_die(kafka, gateway, tmp_path, "at-most-once", kills, LANES)

    missing = lives.labels - set(lives.seen)
    lanes = read_status(tmp_path / "state", gateway).lanes
    print(f"missing={len(missing)} maybe_lost={lives.maybe_lost}")
    assert set(lanes) == {DEFAULT_LANE, "odd"}
    assert set(lives.seen.values()) == {1}
    assert set(lives.seen) <= lives.labels
    assert len(missing) <= lives.maybe_lost <= len(lanes) * kills * EVENTS_PER_BATCH
