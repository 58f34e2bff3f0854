"""Effects of options that no test of their own area covers."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.cli.api import Api
from agent.config.settings import IdentitySettings, MqttSettings
from agent.identity.identify import identify
from agent.mqtt import client
from contract.event import Event
from contract.record import ClockTrust
from tests.agent.store.stores import HandClock, accept, make_store, stored_events, submit
from tests.support.agent_process import agent_process, wait_until_ready
from tests.support.waiting import wait_until

ID = Event("urn:a", id=1, data={"x": 1})


def test_what_the_environment_says_takes_effect(tmp_path: Path) -> None:
    file = tmp_path / "oncegate.toml"
    file.write_text('[gateway]\nid = "gw1"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    environment = {
        "ONCEGATE_GATEWAY__ID": "another",
        "ONCEGATE_GATEWAY__STATE_DIR": str(tmp_path / "elsewhere"),
        "ONCEGATE_GATEWAY__CLOCK": "trusted",
        "ONCEGATE_COAP__ENABLED": "false",
        "ONCEGATE_HTTP__BIND": "[::1]:0",
        "ONCEGATE_STORE__MAX_BYTES": "3MiB",
    }
    with agent_process(file, environment) as agent:
        agent.start()
        ports = wait_until_ready(agent)
        assert ports.keys() == {"http"}
        live: dict[str, Any] = Api(f"http://[::1]:{ports['http']}").get("/api/v1/live?after=0").document
    assert (live["status"]["gateway"], live["clock"], live["store_bytes_max"]) == ("another", "trusted", 3 << 20)
    assert (tmp_path / "elsewhere" / "events.db").exists()


def test_the_horizon_bounds_when_a_copy_can_have_existed() -> None:
    def bound(horizon: float | None) -> int | None:
        settings = IdentitySettings(resend_horizon_seconds=horizon)
        return identify(ID, "coap", 1_000_000, ClockTrust.TRUSTED, settings).bound

    assert (bound(None), bound(60.0)) == (None, 940_000)


@pytest.mark.parametrize(("window", "hinted"), [(10.0, False), (100.0, True)])
async def test_equal_data_is_suspicious_within_the_window(tmp_path: Path, window: float, *, hinted: bool) -> None:
    clock = HandClock()
    async with make_store(tmp_path, clock, resend_window_seconds=window) as store:
        for _ in range(2):
            await accept(store, Event("urn:a", data={"x": 1}))
            clock.pass_seconds(50)
        tails = [event.tail for event in stored_events(store)]
    assert (b"possible_duplicate_of" in tails[-1]) is hinted


@pytest.mark.parametrize(("most", "commits"), [(1, 3), (1_000, 1)])
async def test_a_commit_has_no_more_events_than_it_may(tmp_path: Path, most: int, commits: int) -> None:
    async with make_store(tmp_path, commit_events_max=most) as store:
        blocked, go_on = threading.Event(), threading.Event()

        def block() -> None:
            blocked.set()
            go_on.wait(60)

        store._writer.put(block)
        await asyncio.to_thread(blocked.wait, 60)
        outcomes = [submit(store, Event("urn:a", id=number)) for number in range(3)]
        go_on.set()
        for outcome in outcomes:
            assert (await outcome).accepted == 1
        assert store.commit_durations.cumulative()[-1][1] == commits


async def test_a_commit_waits_for_more_events_as_long_as_it_may(tmp_path: Path) -> None:
    async with make_store(tmp_path, commit_delay_ms_max=20_000, commit_events_max=2) as store:
        first = submit(store, Event("urn:a", id=1))
        await asyncio.to_thread(wait_until, store._writer._queue.empty, "the writer has taken the first event")
        second = submit(store, Event("urn:a", id=2))
        assert (await first).accepted == (await second).accepted == 1
        assert store.commit_durations.cumulative()[-1][1] == 1


def test_the_broker_keeps_messages_for_as_long_as_it_is_told_to() -> None:
    settings = MqttSettings(enabled=True, session_expiry_seconds=90.0)
    assert "SessionExpiryInterval : 90" in str(client._session(settings, 5))
