"""OSCORE with an agent that is killed: aiocoap's client continues, and captured datagrams are refused."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped] # aiocoap carries no types

from agent.coap.oscore.credentials import create_credential
from simulators.services import ports
from simulators.services.process import Process
from tests.agent.coap.oscore.protected import ProtectedSensor, posted_by_aiocoap, sensor_folder
from tests.agent.coap.sensor import Sensor, post
from tests.agent.mqtt.agents import stored
from tests.support.agent_process import agent_process, configured

DEVICE = "urn:dev:mac:00158d0001a2b3c4"


def body(number: int) -> bytes:
    return b"\xa2\x62id\x18" + bytes((number,)) + b"\x64data\xa1\x61x\x01"


@pytest.fixture
def port() -> int:
    (number,) = ports.free(1, socket.SOCK_DGRAM)
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
    options = f'[coap.oscore]\ncredentials_dir = "{credentials}"\nrequired = true\n'
    configuration = configured(tmp_path, options, coap=f"[::1]:{port}")
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


@pytest.mark.guarantee(2)
def test_every_credential_protects_its_name_on_every_way_in_also_where_its_file_cannot_be_used(
    tmp_path: Path, port: int
) -> None:
    credentials, tokens = tmp_path / "credentials", tmp_path / "tokens"
    credentials.mkdir()
    good, relay, open_to_all, repeated, of_token = (
        f"urn:x:{name}" for name in ("a", "relay", "open", "twice", "token")
    )
    create_credential(credentials, good, relay=False)
    create_credential(credentials, relay, relay=True)
    file, _ = create_credential(credentials, open_to_all, relay=False)
    file.chmod(0o644)
    text = file.read_text().replace(open_to_all, repeated).replace('sensor_id = "03"', 'sensor_id = "01"')
    (credentials / "zz.toml").write_text(text)
    (credentials / "zz.toml").chmod(0o640)
    tokens.write_text(f"device {of_token} sha256:{'0' * 64}\nreader r sha256:{'1' * 64}\n")
    tokens.chmod(0o640)
    configuration = configured(tmp_path, f'[coap.oscore]\ncredentials_dir = "{credentials}"\n', coap=f"[::1]:{port}")
    configuration.write_text(configuration.read_text().replace("[http]", f'[http]\ntoken_file = "{tokens}"'))

    def codes(agent: Process) -> tuple[list[int], int]:
        agent.start()
        agent.wait_for_log("agent=ready")
        devices = (good, relay, open_to_all, repeated, of_token, good.upper(), "r")
        answers = [asyncio.run(plainly(port, f'{{"device":"{device}","id":1}}'.encode())) for device in devices]
        with closing(
            HTTPConnection("127.0.0.1", int(agent.log().split("http=127.0.0.1:")[-1].split()[0]))
        ) as connection:
            connection.request("GET", "/readyz")
            ready = connection.getresponse().status
        agent.terminate()
        return answers, ready

    with agent_process(configuration) as agent:
        assert codes(agent) == ([0x83] * 6 + [0x44], 200)
        (credentials / "torn.toml").write_text("device =")
        assert codes(agent) == ([0x81] * 7, 503)
    log = (tmp_path / "agent.log").read_text()
    assert "oscore=required" in log


async def plainly(port: int, body: bytes) -> int:
    """Post an event without OSCORE; return the answer's code."""
    with Sensor(port) as sensor:
        return (await sensor.ask(post(payload=body, content_format=50))).code
