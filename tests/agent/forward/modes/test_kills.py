"""SIGKILL: at every step of a batch that is delivered at most once, and in the middle of a long backlog."""

import asyncio
import random
import re
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
from simulators.services.process import Process
from tests.agent.forward.broker import KafkaTopic, label
from tests.agent.forward.modes.self_killing_agent import BATCHES_MAX, EVENTS_PER_BATCH
from tests.agent.store.stores import HandClock, accept
from tests.support.agent_process import agent_process, configured
from tests.support.waiting import wait_for_count, wait_until

SECONDS_PER_KILL_MAX = 20
EVENTS_A_COMMIT = 500
LANES = '[[forward.lanes]]\nname = "odd"\ndevice = "d[135]"\npriority = 0\n'
"""A lane that sends at the same time as the default lane."""

pytestmark = [pytest.mark.kafka, pytest.mark.heavy]


@pytest.mark.guarantee(4)
@pytest.mark.parametrize(("kills", "lanes"), [(200, ""), (40, LANES)], ids=["one lane", "two lanes"])
async def test_at_most_once_no_label_is_there_twice_and_none_is_missing_uncounted_whenever_the_agent_is_killed(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, kills: int, lanes: str
) -> None:
    state, options = tmp_path / "state", f'topic = "{kafka.topic}"\ndelivery = "at-most-once"\n{lanes}'
    configuration = configured(tmp_path, options, gateway=gateway, coap="", http="", kafka=kafka.bootstrap_servers)
    labels = await filled(configuration, kills * BATCHES_MAX * EVENTS_PER_BATCH)

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


async def filled(configuration: Path, count: int) -> Set[tuple[str, int]]:
    """Have the gateway accept events before its agent starts; return the labels of all that is stored then."""
    settings = load.load(configuration)
    async with lane_stores(settings, HandClock()) as stores:
        for first in range(0, count, EVENTS_A_COMMIT):
            numbers = range(first, first + EVENTS_A_COMMIT)
            await accept(stores, *[Event(f"d{number % 7}", id=number, data={"t": 20.5}) for number in numbers])
    return set().union(*(stored_labels(one / FILE_NAME) for one in store_folders(settings.gateway.state_dir).values()))


def stored_labels(store: Path) -> Set[tuple[str, int]]:
    with closing(database.open_for_reading(store)) as connection:
        epochs, end = Epochs.load(connection), tables.last_position(connection)
    labels = (epochs.label(position) for position in range(1, end + 1))
    return {(label.epoch, label.sequence) for label in labels}


RSS_BYTES_MAX = 128 << 20
"""Half of the unit's limit (MemoryMax)."""


def rss_bytes_max(agent: Process) -> int:
    found = re.search(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{agent.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.guarantee(4)
@pytest.mark.parametrize(("mode", "count"), [("at-least-once", 1_000_000), ("exactly-once", 200_000)])
async def test_a_long_backlog_leaves_in_bounded_memory_and_survives_a_kill_in_the_middle(
    kafka: KafkaTopic, gateway: str, tmp_path: Path, mode: str, count: int
) -> None:
    state = tmp_path / "state"
    options = f'topic = "{kafka.topic}"\ndelivery = "{mode}"\n[receipts]\npoll_seconds = 1\n'
    configuration = configured(tmp_path, options, gateway=gateway, coap="", http="", kafka=kafka.bootstrap_servers)
    labels = await filled(configuration, count)

    with agent_process(configuration) as agent:
        agent.start()
        wait_until(lambda: read_status(state, gateway).events.new < count // 2, "half of it has left", 600)
        used = rss_bytes_max(agent)
        agent.kill()
        agent.start()
        wait_for_count(lambda: read_status(state, gateway).events.new, 0, "all of it has left")
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: read_status(state, gateway).events.forwarded, 0, "all of it has its receipt")
        used = max(used, rss_bytes_max(agent))
    seen = Counter(label(one) for one in kafka.records())

    print(f"used={used >> 20} MiB, records={seen.total()}")
    assert used < RSS_BYTES_MAX
    assert set(seen) == labels
    if mode == "exactly-once":
        assert seen.total() == len(labels)
