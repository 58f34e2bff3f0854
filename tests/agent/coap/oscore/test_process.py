"""OSCORE with an agent that is killed: aiocoap's client continues, and captured datagrams are refused."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped] # aiocoap carries no types

from agent.coap.oscore.credentials import create_credential
from tests.agent.coap.oscore.protected import ProtectedSensor, posted_by_aiocoap, sensor_folder
from tests.agent.coap.sensor import Sensor, post
from tests.agent.mqtt.agents import stored
from tests.support.agent_process import agent_process

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


def body(number: int) -> bytes:
    return b"\xa2\x62id\x18" + bytes((number,)) + b"\x64data\xa1\x61x\x01"


@pytest.fixture
def port() -> int:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as free:
        free.bind(("::1", 0))
        number: int = free.getsockname()[1]
        return number


@pytest.mark.guarantee(2)
def test_after_a_kill_the_client_goes_on_and_a_captured_datagram_is_refused(tmp_path: Path, port: int) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    _, credential = create_credential(credentials, DEVICE, relay=False)
    _, other = create_credential(credentials, "urn:dev:mac:00158d0001a2b3c5", relay=False)
    (credentials / "broken.toml").write_text("device =")
    (credentials / "deep.toml").write_text("a = " + "[" * 6_000)
    os.mkfifo(credentials / "fifo.toml", 0o600)
    configuration = tmp_path / "oncegate.toml"
    configuration.write_text(
        f'[gateway]\nid = "gw1"\nstate_dir = "{tmp_path / "state"}"\n[coap]\nbind = "[::1]:{port}"\n'
        f'[coap.oscore]\ncredentials_dir = "{credentials}"\nrequired = true\n'
        f'[http]\nbind = "127.0.0.1:0"\n[kafka]\nbootstrap_servers = "127.0.0.1:1"\n'
    )
    folder = sensor_folder(tmp_path / "sensor", credential)
    seen = ProtectedSensor(sensor_folder(tmp_path / "other", other))
    captured: list[bytes] = []

    async def speak(number: int) -> None:
        with Sensor(port) as sensor:
            answer, raw = await seen.post(sensor, body(number))
            assert answer.code == Code.CHANGED
            captured.append(raw)
            assert (await sensor.ask(post())).code == 0x81

    async def replay() -> None:
        with Sensor(port) as stranger:
            for raw in captured:
                inside = (await stranger.ask_raw(raw))[1]
                assert inside in (0x44, 0x81)  # a challenge that only the sensor can read, or a plain refusal

    with agent_process(configuration) as agent:
        for life in range(3):
            agent.start()
            agent.wait_for_log("agent=ready")
            asyncio.run(replay())
            assert posted_by_aiocoap(folder, port, [body(30 + life), body(30 + life)]) == ["2.04 "] * 2
            asyncio.run(speak(40 + life))
            asyncio.run(replay())
            agent.kill()
    events = stored(tmp_path)
    assert sorted((event["device"], event["id"]) for event in events) == sorted(
        [(credential.device, 30 + life) for life in range(3)] + [(other.device, 40 + life) for life in range(3)]
    )
    log = (tmp_path / "agent.log").read_text()
    for name, reason in (("broken", "not TOML"), ("deep", "not TOML: nested too deeply"), ("fifo", "cannot be read")):
        assert f"{credentials / name}.toml: {reason}" in log
