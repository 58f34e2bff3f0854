"""Exactly once across SIGKILL at every step of a transaction: a reader of what is committed sees each label once."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from agent.settings import IdentitySettings, StoreSettings
from agent.status import read_status
from agent.store import database, tables
from agent.store.event_store import EventStore
from agent.store.reader import Epochs
from contract.event import Event
from tests.forward.kafka_side import KafkaSide, header
from tests.forward.mortal_agent import EVENTS_PER_TRANSACTION, TRANSACTIONS_MAX
from tests.store.stores import HandClock, accept
from tests.support.agent_process import agent_process
from tests.support.waiting import wait_for_count

SECONDS_PER_KILL_MAX = 20
EVENTS_A_COMMIT = 500

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.heavy)])
async def test_each_label_is_there_once_whenever_the_agent_is_killed(
    kafka: KafkaSide, tmp_path: Path, kills: int
) -> None:
    gateway = f"gw-{kafka.topic}"
    configuration = tmp_path / "oncegate.toml"
    configuration.write_text(
        f'[gateway]\nid = "{gateway}"\nstate_dir = "{tmp_path / "state"}"\n[coap]\nenabled = false\n'
        f'[http]\nenabled = false\n[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\n'
        f'topic = "{kafka.topic}"\ndelivery = "exactly-once"\n'
    )
    clock = HandClock()
    async with EventStore(tmp_path / "state", gateway, StoreSettings(), IdentitySettings(), clock) as store:
        for first in range(0, kills * TRANSACTIONS_MAX * EVENTS_PER_TRANSACTION, EVENTS_A_COMMIT):
            events = [Event(f"d{number % 7}", id=number, data={}) for number in range(first, first + EVENTS_A_COMMIT)]
            await accept(store, clock, *events)

    seed = random.randrange(1 << 32)
    command = [sys.executable, "-m", "tests.forward.mortal_agent", str(configuration), str(kills), str(seed)]
    seconds = 120 + kills * SECONDS_PER_KILL_MAX
    lives = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=seconds
    )
    print(f"seed={seed}", lives.stdout, lives.stderr[-5_000:])
    assert lives.returncode == 0
    assert lives.stdout.count("signal=9") == kills
    with agent_process(configuration) as agent:
        agent.start()
        wait_for_count(lambda: read_status(tmp_path / "state", gateway).events.new, 0, "all is forwarded")

    seen = Counter((header(one, "ce_epoch").decode(), int(header(one, "ce_sequence"))) for one in kafka.records())
    assert Counter(seen.values()) == Counter({1: len(seen)})
    with closing(database.open_for_reading(tmp_path / "state" / database.FILE_NAME)) as connection:
        epochs, end = Epochs.load(connection), tables.last_position(connection)
    labels = [epochs.label(position) for position in range(1, end + 1)]
    assert set(seen) == {(label.epoch, label.sequence) for label in labels}
    assert lives.stderr.count("recovered=") > 0
