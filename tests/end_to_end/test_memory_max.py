"""The agent under the service's memory limit while unknown clients flood every input at once."""

import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulators import wire
from simulators.services.mosquitto import Mosquitto
from simulators.services.process import Command, Process
from tests.agent.mqtt.agents import accepted, rejected
from tests.agent.mqtt.publisher import Publisher
from tests.support.agent_process import ask, configured, wait_until_ready
from tests.support.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A cgroup, of version 1 or 2."""

    folder: Path

    def wrap(self, command: tuple[str, ...]) -> tuple[str, ...]:
        return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command)

    def kills(self) -> int:
        for name in ("memory.events", "memory.oom_control"):
            if (file := self.folder / name).exists():
                return int(dict(line.split() for line in file.read_text().splitlines())["oom_kill"])
        raise FileNotFoundError(self.folder)


@contextmanager
def memory_group(bytes_max: int) -> Iterator[MemoryGroup]:
    """Create a group with this limit; skip the test where that is not permitted."""
    first = _ROOT / "memory" if (_ROOT / "memory").is_dir() else None
    folder = (first or _ROOT) / f"oncegate-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            if first is None:
                (folder / "memory.swap.max").write_text("0")
            (folder / ("memory.max" if first is None else "memory.limit_in_bytes")).write_text(str(bytes_max))
        except OSError as error:
            pytest.skip(f"no memory bound can be set here: {error}")
        yield MemoryGroup(folder)
    finally:
        folder.rmdir()


MEMORY_BYTES_MAX = 256 << 20
"""MemoryMax of systemd/oncegate.service."""
ROUNDS, ROUND_SECONDS = 2, 12.0
HUGE_BYTES = 120 << 20
READERS, POSTERS = 120, 100
EVENTS = "/api/v1/events"
LIVE = b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW_POST = (
    b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 65000\r\n\r\n" + b" " * 60_000
)


@contextmanager
def _flooding(flood: Callable[[threading.Event], None]) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=flood, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _datagrams(port: int, body: Callable[[int], bytes]) -> Callable[[threading.Event], None]:
    """Send bodies over CoAP without waiting for an answer."""

    def flood(stop: threading.Event) -> None:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as stranger:
            stranger.connect(("::1", port))
            number = 0
            while not stop.is_set():
                number += 1
                with suppress(OSError):  # the kernel may refuse for lack of buffer space
                    stranger.send(wire.Request(body(number), 50).datagram(number % 65_536, number.to_bytes(4, "big")))

    return flood


def _large(number: int) -> bytes:
    digits = random.Random(number).randbytes(30_000).hex()
    return json.dumps({"device": "stranger", "id": number, "data": {"x": digits}}).encode()


def _named(number: int) -> bytes:
    names = ["\U0001f600" * 240 + f"{40 * number + one:010d}" for one in range(40)]
    return json.dumps([{"device": name, "id": 1} for name in names], ensure_ascii=False).encode()


def _dense(number: int) -> bytes:
    return json.dumps(
        [{"device": "stranger", "data": {"n": number, "x": [[]] * 3_000}}] * 5, separators=(",", ":")
    ).encode()


def _held_open(stack: ExitStack, port: int, address: str, count: int, asked: bytes) -> None:
    """Send requests from an address of this machine, and read no answers."""
    for _ in range(count):
        client = stack.enter_context(socket.socket())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.bind((address, 0))
        client.connect(("127.0.0.1", port))
        client.sendall(asked)


def _ask(port: int, method: str, path: str, body: bytes | None = None) -> int:
    with suppress(OSError):
        return ask(port, method, path, body)[0]
    return 0


def _acked(port: int, body: bytes) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sensor:
        sensor.connect(("::1", port))
        sensor.settimeout(5.0)
        sensor.send(wire.Request(body, 50).datagram(7, b"mine"))
        with suppress(OSError):
            return sensor.recv(1_500)[1] == 0x44
    return False


@pytest.mark.guarantee(6)
@pytest.mark.heavy
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_strangers_by_every_way_in_do_not_end_the_agent_within_its_memory(tmp_path: Path, version: str) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Mosquitto(tmp_path / "mosquitto"))
        publisher = stack.enter_context(Publisher(broker.port))
        group = stack.enter_context(memory_group(MEMORY_BYTES_MAX))
        file = configured(
            tmp_path,
            f'[mqtt]\nenabled = true\nhost = "127.0.0.1"\nport = {broker.port}\nversion = "{version}"\n'
            '[[mqtt.subscriptions]]\ntopic = "plant/{device}"\nformat = "json"\n',
        )
        command = group.wrap((sys.executable, "-m", "agent.cli.main", "run", "--config", str(file)))
        agent = stack.enter_context(Process(Command("agent", command, tmp_path / "agent.log")))
        wait_until(lambda: "mqtt=connected" in agent.log(), "the agent is at the broker")
        ports = wait_until_ready(agent)
        coap_port, http_port = ports["coap"], ports["http"]
        _flood(publisher, coap_port, http_port, agent)
        assert (agent.alive, group.kills()) == (True, 0)
        wait_until(lambda: _acked(coap_port, b'{"device":"mine","id":1}'), "a sensor's event is acked")
        wait_until(
            lambda: _ask(http_port, "POST", "/api/v1/events", b'{"device":"mine","id":2}') == 200, "and over HTTP"
        )
        before = accepted(tmp_path)
        publisher.publish("plant/mine", b'{"id":3}')
        wait_until(lambda: accepted(tmp_path) > before, "and over MQTT")
        assert [len(raw) for device, _, raw in rejected(tmp_path) if device == "huge"] == ([4_096] * (version != "5"))
        assert (agent.alive, group.kills()) == (True, 0)


def _flood(publisher: Publisher, coap_port: int, http_port: int, agent: Process) -> None:
    with ExitStack() as stack:
        for body in (_large, _named, _dense):
            stack.enter_context(_flooding(_datagrams(coap_port, body)))
        publisher.publish("plant/huge", b"x" * HUGE_BYTES)
        for _ in range(ROUNDS):
            end = time.monotonic() + ROUND_SECONDS
            with ExitStack() as clients, suppress(OSError):
                _held_open(clients, http_port, "127.0.0.2", READERS, 6 * LIVE)
                _held_open(clients, http_port, "127.0.0.3", POSTERS, SLOW_POST)
                while agent.alive and time.monotonic() < end:
                    _ask(http_port, "GET", "/healthz")
