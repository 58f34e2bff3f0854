"""`oncegate replay`: kept events are sent again with unchanged labels, and the others are reported."""

import subprocess
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from agent.cli.store.replay import select_events, unsent_lines
from agent.status import read_status
from agent.store.layout import FILE_NAME
from agent.store.ranges import Ranges
from agent.store.read.kept import LOST, NEW, positions_of
from agent.store.schema import database
from contract.event import Event
from tests.agent.forward.broker import KafkaTopic, header, label
from tests.agent.forward.running import GATEWAY
from tests.agent.store.stores import accept, batch, make_store, mark_processed
from tests.support.agent_process import agent_process, configured, post_events
from tests.support.waiting import wait_for_count

EVENTS = 30
NOTE = ("note", "")


def configure(folder: Path, bootstrap_servers: str, topic: str = "t") -> Path:
    return configured(folder, f'topic = "{topic}"\n', gateway=GATEWAY, coap="", kafka=bootstrap_servers)


def replay(configuration: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent.cli.main", "replay", "--config", str(configuration), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.heavy
@pytest.mark.kafka
def test_what_is_kept_is_sent_again_while_the_agent_runs(kafka: KafkaTopic, tmp_path: Path) -> None:
    configuration = configure(tmp_path, kafka.bootstrap_servers, kafka.topic)
    with agent_process(configuration) as agent:
        agent.start()
        post_events(agent, range(EVENTS))
        status = partial(read_status, tmp_path / "state", GATEWAY)
        wait_for_count(lambda: status().events.forwarded, EVENTS + 1, "all are forwarded")
        epoch = str(status().epoch)

        some = replay(configuration, "--epoch", epoch, "--from", "2", "--to", "11")
        everything = replay(configuration, "--epoch", epoch)

        assert (some.returncode, some.stderr) == (0, "")
        assert "10 events" in some.stdout
        assert (everything.returncode, f"{EVENTS + 1} events" in everything.stdout) == (0, True)
        assert read_status(tmp_path / "state", GATEWAY).events.forwarded == EVENTS + 1
    seen = Counter((*label(record), header(record, "ce_id")) for record in kafka.records())
    assert len(seen) == EVENTS + 1
    assert {(label[1], times) for label, times in seen.items()} == {
        (sequence, 3 if 2 <= sequence <= 11 else 2) for sequence in range(1, EVENTS + 2)
    }


@pytest.mark.guarantee(4)
async def test_it_is_told_what_is_sent_what_waits_what_is_lost_and_what_is_gone(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        for number in range(6):  # positions 2 to 7, after the event that begins the epoch
            await accept(store, Event("d", id=number, data={}))
        store.outbox.release(1, 2, NOTE)
        mark_processed(store, 3, 4)
        store.outbox.mark_forwarded(batch(5, 5))
        store.outbox.give_up(6, "too large")
        with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
            positions = positions_of(connection, store.outbox.epoch())
            assert positions == range(1, 9)  # the gap's own event, too
            states: Counter[str] = Counter()
            kept = Ranges()
            chosen = [event.position for event in select_events(connection, positions, states, kept)]
            assert positions_of(connection, "no such epoch") is None
    assert chosen == [3, 4, 5]
    missing = list(kept.holes(1, 8))
    assert (states[NEW], states[LOST], missing) == (2, 1, [(1, 2)])
    assert list(unsent_lines(states, missing)) == [
        "2 events not yet sent: the agent sends them by itself",
        "1 event given up, and declared by gateway.gap events",
        "2 events no longer kept: sequence 1 to 2",
    ]


async def test_each_epoch_has_its_own_positions(tmp_path: Path) -> None:
    epochs = []
    for number in range(3):
        async with make_store(tmp_path) as store:
            await accept(store, Event("d", id=number, data={}))
            epochs.append(store.outbox.epoch())
    with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
        assert [positions_of(connection, epoch) for epoch in epochs] == [range(1, 3), range(3, 5), range(5, 7)]


@pytest.mark.heavy
async def test_a_broker_that_is_away_is_said(tmp_path: Path) -> None:
    async with make_store(tmp_path / "state") as store:
        await accept(store, Event("d", id=1, data={}))
        store.outbox.mark_forwarded(batch(1, 2))
        epoch = store.outbox.epoch()
    configuration = configure(tmp_path, "127.0.0.1:1")

    away = replay(configuration, "--epoch", epoch)
    wrong = replay(configuration, "--epoch", epoch, "--from", "0")

    assert (away.returncode, "127.0.0.1:1" in away.stderr, "Traceback" in away.stderr) == (1, True, False)
    assert (wrong.returncode, "expected a whole number, 1 or more" in wrong.stderr) == (2, True)
