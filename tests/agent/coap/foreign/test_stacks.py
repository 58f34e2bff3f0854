"""Sensors with CoAP stacks of other makers: Californium, plain and with OSCORE, and go-coap."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.cli.sensor.credentials import sensor_side
from agent.coap.oscore.credentials import create_credential
from simulators.link.faults import link_profile
from simulators.link.udp import Link
from simulators.scenario import LinkPlan
from simulators.services import ports
from simulators.services.install import jars, java
from tests.agent.mqtt.agents import stored
from tests.support.agent_process import agent_process, configured

pytestmark = pytest.mark.heavy
HERE = Path(__file__).parent
HOST, SEED = "127.0.0.1", 20
DEVICE = "urn:dev:ow:1"
EVENTS = 40
LOSSY = LinkPlan(request_loss=0.1, answer_loss=0.15, jitter_seconds=0.02, duplicated=0.1, reordered=0.05)
DATAGRAM, UPLOAD = 0, 100
"""Bytes of text in an event, for one datagram and for three blocks of 64 bytes."""
BUILD_SECONDS_MAX = 600
TRIES_MAX = 50


def californium(folder: Path) -> tuple[str, ...]:
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("there is no javac")
    classpath = ":".join([str(folder), *map(str, jars.paths(jars.CALIFORNIUM))])
    source = HERE / "Californium.java"
    subprocess.run([compiler, "-nowarn", "-cp", classpath, "-d", str(folder), str(source)], check=True)
    return (str(java.require()), "-Xmx64m", "-XX:+UseSerialGC", "-cp", classpath, "Californium", "{address}")


def protected_californium(folder: Path) -> tuple[str, ...]:
    secrets = sensor_side(create_credential(folder, DEVICE, relay=False)[1])
    return (*californium(folder), *secrets.values())


def go_coap(folder: Path) -> tuple[str, ...]:
    go = shutil.which("go", path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go")
    program = str(folder / "gocoap")
    subprocess.run([go, "build", "-o", program, "."], cwd=HERE / "gocoap", check=True, timeout=BUILD_SECONDS_MAX)
    return (program, "{address}")


@dataclass(slots=True)
class Sensor:
    process: asyncio.subprocess.Process

    async def post(self, kind: str, event: str) -> str:
        """Post by `CON` or `NON`; return the code of the response, or `none`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{kind} {event}\n".encode())
        line = await self.process.stdout.readline()
        assert line, "the client has ended"
        return line.decode().strip()


@asynccontextmanager
async def running(command: Sequence[str], address: tuple[str, int]) -> AsyncIterator[Sensor]:
    host, port = address
    line = [part.format(address=f"{host}:{port}") for part in command]
    process = await asyncio.create_subprocess_exec(*line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Sensor(process)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.guarantee(1)
@pytest.mark.parametrize(
    ("made", "plan", "sizes"),
    [
        pytest.param(californium, LOSSY, (DATAGRAM, UPLOAD), id="Californium"),
        pytest.param(protected_californium, LOSSY, (DATAGRAM, UPLOAD), id="Californium-OSCORE"),
        pytest.param(go_coap, LOSSY, (DATAGRAM,), id="go-coap"),
        # It retransmits no block after the first.
        pytest.param(go_coap, LinkPlan(), (UPLOAD,), id="go-coap-blocks"),
    ],
)
async def test_what_is_acknowledged_is_stored_once(
    made: Callable[[Path], tuple[str, ...]], plan: LinkPlan, sizes: Sequence[int], tmp_path: Path
) -> None:
    (port,) = ports.free(1, socket.SOCK_DGRAM)
    (folder := tmp_path / "client").mkdir()
    command = made(folder)
    protection = (
        f'[coap.oscore]\ncredentials_dir = "{folder}"\nrequired = true\n' if made is protected_californium else ""
    )
    attempts = Counter[str]()
    with agent_process(configured(tmp_path, protection, coap=f"{HOST}:{port}", http="")) as agent:
        agent.start()
        agent.wait_for_log("agent=ready")
        link = Link([(HOST, port)], link_profile(plan), SEED)
        async with link, running(command, link.address) as sensor:
            for number in range(EVENTS):
                if number == EVENTS // 2:
                    agent.kill()
                    agent.start()
                kind = "NON" if number % 10 == 0 else "CON"
                data = {"text": "x" * sizes[number % len(sizes)]}
                event = json.dumps({"device": DEVICE, "id": number, "data": data})
                for _ in range(TRIES_MAX):
                    code = await sensor.post(kind, event)
                    attempts[code] += 1
                    if code == "2.04":
                        break
        agent.terminate()
    assert [event["id"] for event in stored(tmp_path)] == list(range(EVENTS)), attempts
    assert set(attempts) <= {"2.04", "4.08", "none"}, attempts  # 4.08: a block was lost, begin the upload again
