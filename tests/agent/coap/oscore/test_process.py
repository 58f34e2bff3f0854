"""OSCORE with a real agent: a credential protects its name on every way in."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from agent.coap.oscore.credentials import create_credential
from simulators.services import ports
from simulators.services.process import Process
from tests.agent.coap.sensor import Sensor, post
from tests.support.agent_process import agent_process, configured


@pytest.mark.guarantee(2)
def test_every_credential_protects_its_name_on_every_way_in_also_where_its_file_cannot_be_used(
    tmp_path: Path,
) -> None:
    (port,) = ports.free(1, socket.SOCK_DGRAM)
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
