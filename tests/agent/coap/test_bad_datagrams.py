"""Thousands of random and mutated datagrams, and floods of slow-path requests: the agent runs, no event is missing."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from simulators import wire
from simulators.services.process import Process
from tests.agent.mqtt.agents import stored
from tests.support.agent_process import agent_process, configured, wait_until_ready
from tests.support.udp import ask

SEED = 7252
DEVICE = "urn:dev:mac:00158d0001a2b3c4"
DATAGRAMS, CHUNK = 20_000, 64
"""Bad datagrams between two events; the ack of each paces the flood."""
JOURNAL_LINES_MAX = 100
GROWTH_BYTES_MAX = 12 << 20
"""In the second half: the caches of answers and hints have reached their bounds by then. Only the index still grows, by
the mutated events that are valid."""


@dataclass(slots=True)
class Gateway:
    process: Process
    folder: Path
    port: int

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Gateway]:
    with agent_process(configured(tmp_path)) as process:
        process.start()
        yield Gateway(process, tmp_path, wait_until_ready(process)["coap"])


def event(number: int) -> wire.Request:
    return wire.Request(b'{"device":"%s","id":%d,"boot":1,"data":{"n":%d}}' % (DEVICE.encode(), number, number), 50)


def bad(random: Random) -> bytes:
    """Random bytes, or an event with some of its bytes overwritten, removed or inserted."""
    if random.random() < 0.3:
        return random.randbytes(random.randrange(80))
    raw = bytearray(event(random.randrange(1 << 30, 1 << 31)).datagram(random.randrange(65_536), random.randbytes(4)))
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(raw) + 1)
        raw[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(raw)


@pytest.mark.guarantee(1)
def test_twenty_thousand_bad_datagrams_leave_the_agent_alive_and_every_event_stored(agent: Gateway) -> None:
    random = Random(SEED)
    acked, settled = list[int](), 0
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as stranger:
        stranger.connect(("::1", agent.port))
        for chunk in range(DATAGRAMS // CHUNK):
            for _ in range(CHUNK):
                stranger.send(bad(random))
            number = len(acked) + 1
            assert ask("::1", agent.port, event(number), number % 65_536) == "2.04", f"seed {SEED}"
            acked.append(number)
            if chunk == DATAGRAMS // CHUNK // 2:
                settled = agent.resident_bytes()
    assert agent.process.alive
    growth = agent.resident_bytes() - settled
    assert growth < GROWTH_BYTES_MAX, f"{growth} bytes more"
    assert len(agent.process.log().splitlines()) < JOURNAL_LINES_MAX
    assert "Traceback" not in agent.process.log()
    assert agent.process.terminate() == 0
    own = [found["id"] for found in stored(agent.folder) if found["device"] == DEVICE and found.get("boot") == 1]
    taken = [number for number in own if isinstance(number, int) and number < 1 << 30]
    assert [number for number in taken if number in set(acked)] == acked
