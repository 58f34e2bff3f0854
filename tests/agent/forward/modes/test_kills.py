"""SIGKILL at every step of a batch that is delivered at most once: no label comes twice or is missing uncounted."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Set
from contextlib import closing
from pathlib import Path

import pytest

from agent.config import load
from agent.status import read_status
from agent.store.files.folders import store_folders
from agent.store.lanes import lane_stores
from agent.store.layout import FILE_NAME
from agent.store.read.events import Epochs
from agent.store.schema import database, tables
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, label
from tests.agent.forward.modes.self_killing_agent import BATCHES_MAX, EVENTS_PER_BATCH
from tests.agent.store.stores import HandClock, accept
from tests.support.agent_process import agent_process, configured
from tests.support.waiting import wait_for_count

SECONDS_PER_KILL_MAX = 20
EVENTS_A_COMMIT = 500
LANES = '[[forward.lanes]]\nname = "odd"\ndevice = "d[135]"\npriority = 0\n'
"""A lane that sends at the same time as the default lane."""

pytestmark = pytest.mark.kafka


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize(("kills", "lanes"), [(200, ""), (40, LANES)], ids=["one lane", "two lanes"])
async def test_at_most_once_no_label_is_there_twice_and_none_is_missing_uncounted_whenever_the_agent_is_killed(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, kills: int, lanes: str, clock: HandClock
) -> None:
    state, options = tmp_path / "state", f'topic = "{kafka.topic}"\ndelivery = "at-most-once"\n{lanes}'
    configuration = configured(tmp_path, options, gateway=gateway, coap="", http="", kafka=kafka.bootstrap_servers)
    async with lane_stores(load.load(configuration), clock) as stores:
        for first in range(0, kills * BATCHES_MAX * EVENTS_PER_BATCH, EVENTS_A_COMMIT):
            events = [Event(f"d{number % 7}", id=number, data={}) for number in range(first, first + EVENTS_A_COMMIT)]
            await accept(stores, *events)
    labels = set().union(*(stored_labels(one / FILE_NAME) for one in store_folders(state).values()))

    program, seed = "tests.agent.forward.modes.self_killing_agent", random.randrange(1 << 32)
    lives = await asyncio.to_thread(
        subprocess.run,
        (sys.executable, "-m", program, str(configuration), str(kills), str(seed)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120 + kills * SECONDS_PER_KILL_MAX,
    )
    print(f"seed={seed}", lives.stdout, lives.stderr[-5_000:])
    assert lives.returncode == 0
    assert lives.stdout.count("signal=9") == kills
    with agent_process(configuration) as agent:
        agent.start()
        wait_for_count(lambda: read_status(state, gateway).events.new, 0, "all is forwarded")
        agent.terminate()

    seen, status = Counter(label(one) for one in kafka.records()), read_status(state, gateway)
    missing = labels - set(seen)
    print(f"missing={len(missing)} maybe_lost={status.maybe_lost}")
    assert set(seen.values()) == {1}
    assert set(seen) <= labels
    senders = len(status.lanes) if lanes else 1
    assert senders == (2 if lanes else 1)
    assert len(missing) <= status.maybe_lost <= senders * kills * EVENTS_PER_BATCH


def stored_labels(store: Path) -> Set[tuple[str, int]]:
    with closing(database.open_for_reading(store)) as connection:
        epochs, end = Epochs.load(connection), tables.last_position(connection)
    labels = (epochs.label(position) for position in range(1, end + 1))
    return {(label.epoch, label.sequence) for label in labels}
