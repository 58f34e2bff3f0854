"""The commands on a gateway with lanes, and with a lane that is no longer configured."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from agent.config.lanes import DEFAULT_LANE, Lane
from agent.store.facts import FORWARDER_STOPPED
from agent.store.files.folders import LANES_FOLDER, store_folders
from agent.store.lanes import LaneStores
from agent.store.layout import FILE_NAME
from contract.event import Event
from tests.agent.cli.running import Run
from tests.agent.store.stores import HandClock, accept, batch, candidate, make_store
from tests.support.agent_process import configured

READING, ALARM = Event("urn:a", id=1, data={"x": 1}), Event("urn:a", type="alarm", id=2, data={"x": 2})


@pytest.fixture
def epoch(tmp_path: Path) -> str:
    """Fill the store of the default lane and that of the lane `alarms`; return the epoch of the latter."""

    async def fill() -> str:
        clock = HandClock()
        folder = tmp_path / "state"
        default, alarms = make_store(folder, clock), make_store(folder / LANES_FOLDER / "alarms", clock)
        async with LaneStores({DEFAULT_LANE: default, "alarms": alarms}, [Lane("alarms", 1, type="alarm")]):
            await accept(default, clock, READING)
            clock.pass_seconds(60)
            await accept(alarms, clock, ALARM)
            alarms.outbox.mark_forwarded(batch(1, 1))
            alarms.outbox.set_fact(FORWARDER_STOPPED, "fenced")
            return alarms.outbox.epoch()

    return asyncio.run(fill())


@pytest.fixture
def run(epoch: str, tmp_path: Path, oncegate: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("ONCEGATE_CONFIG", str(configured(tmp_path)))
    return oncegate


def test_the_status_is_that_of_all_lanes_and_counts_each(run: Run) -> None:
    _, out, _ = run("status", "--json")
    status = json.loads(out)
    assert status["events"] == {"new": 3, "forwarded": 1, "processed": 0, "lost": 0}
    assert {lane: (of["new"], of["forwarded"]) for lane, of in status["lanes"].items()} == {
        "default": (2, 0),
        "alarms": (1, 1),
    }
    assert status["accepted"] == 2
    assert status["oldest_new"] == status["oldest_unprocessed"] < status["oldest_forwarded"]
    assert status["forwarding_stopped"] == "lane alarms: fenced"
    _, shown, _ = run("status")
    assert "lane alarms   1 new, 1 forwarded" in shown


def test_events_are_those_of_one_lane(run: Run) -> None:
    for lane, name in (((), "reading"), (("--lane", "alarms"), "alarm")):
        _, out, _ = run("events", "--json", *lane)
        types = [json.loads(line)["type"] for line in out.splitlines()]
        assert types == ["gateway.started", name]
    code, _, error = run("events", "--lane", "doors")
    assert (code, "default, alarms" in error) == (2, True)


def test_an_event_is_traced_whatever_its_lane(run: Run, epoch: str) -> None:
    fingerprint = candidate(HandClock(), ALARM).fingerprint
    assert fingerprint is not None
    code, out, _ = run("trace", "--json", fingerprint.hex())
    assert (code, json.loads(out)["epoch"]) == (0, epoch)
    assert "is not in this store" in run("replay", "--epoch", "0123456789abcdef")[2]


def test_all_lanes_are_verified(run: Run, tmp_path: Path) -> None:
    assert run("verify")[0] == 0
    path = tmp_path / "state" / LANES_FOLDER / "alarms" / "events.db"
    content = bytearray(path.read_bytes())
    at = content.index(b"urn:a")
    content[at] ^= 1
    path.write_bytes(content)
    code, out, _ = run("verify")
    assert (code, str(path) in out) == (1, True)


@pytest.mark.parametrize("damaged", [DEFAULT_LANE, "alarms"])
def test_a_damaged_store_is_named_and_the_epochs_of_other_lanes_are_replayed(
    run: Run, tmp_path: Path, damaged: str
) -> None:
    files = {lane: folder / FILE_NAME for lane, folder in store_folders(tmp_path / "state").items()}
    epochs = {}
    for lane in files:
        _, out, _ = run("events", "--json", "--lane", lane)
        epochs[lane] = json.loads(out.splitlines()[0])["epoch"]
    files[damaged].write_bytes(b"garbage!" * 4096)
    for lane, epoch_of_lane in epochs.items():
        code, _, error = run("replay", "--epoch", epoch_of_lane, "--from", "3")
        expected = f"{files[damaged]}: file is not a database" if lane == damaged else "ends at sequence 2"
        assert (code, expected in error) == (1, True), error
    for command in (("status",), ("trace", "0" * 32), ("replay", "--epoch", "0123456789abcdef")):
        code, _, error = run(*command)
        assert (code, f"{files[damaged]}: file is not a database" in error) == (1, True), error
