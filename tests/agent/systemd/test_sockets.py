"""The ports while the agent restarts: systemd keeps them, and what arrives is served by the next agent."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.cli.failures import USAGE
from agent.http import address
from agent.listening import BindError
from agent.systemd.sockets import Sockets
from simulators import wire
from simulators.services import ports
from tests.agent.http.client import Client
from tests.support.agent_process import configured, stored_documents
from tests.support.disks.small_disk import small_disk, use_up_inodes
from tests.support.waiting import wait_until

_START = """
import os, sys
numbers, *command = sys.argv[1:]
high = [os.dup2(int(number), 100 + index, inheritable=False) for index, number in enumerate(numbers.split())]
for number in numbers.split():
    os.set_inheritable(int(number), False)
for index, number in enumerate(high):
    os.dup2(number, 3 + index)
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), str(len(high))
os.execv(command[0], command)
"""


_UNIT = Path(__file__).resolve().parents[3] / "systemd" / "oncegate.service"
_KEPT_MAX = int(re.findall(r"^FileDescriptorStoreMax=(\d+)$", _UNIT.read_text(), re.MULTILINE)[0])


class Systemd:
    """Starts the agent, and keeps its descriptors between two starts, as many as the unit allows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notified.bind(str(folder / "notify"))
        self.kept: dict[str, int] = {}
        self._ready = threading.Event()
        self._agent: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._receive, daemon=True).start()

    def start(self) -> None:
        self._ready.clear()
        agent = self.spawn()
        wait_until(lambda: self._ready.is_set() or agent.poll() is not None, "the agent is ready")
        assert agent.poll() is None, self.log()

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the agent with the kept descriptors as 3, 4 and so on."""
        kept = list(self.kept.values())
        start = (sys.executable, "-c", _START, " ".join(map(str, kept)), sys.executable)
        notify = {"NOTIFY_SOCKET": str(self._folder / "notify"), "LISTEN_FDNAMES": ":".join(self.kept)}
        with (self._folder / "agent.log").open("ab") as log:
            self._agent = subprocess.Popen(
                [*start, "-m", "agent.cli.main", "run", "--config", str(self._folder / "oncegate.toml")],
                env={**os.environ, **notify},
                pass_fds=kept,
                stdout=log,
                stderr=log,
            )
        return self._agent

    def end(self, number: signal.Signals) -> None:
        if self._agent is not None:
            self._agent.send_signal(number)
            self._agent.wait(60)

    def log(self) -> str:
        return (self._folder / "agent.log").read_text()

    def _receive(self) -> None:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._notified, 4096, 8)
            told = dict(line.split("=", 1) for line in message.decode().splitlines())
            if "FDSTORE" in told and len(self.kept) < _KEPT_MAX:
                (self.kept[told["FDNAME"]],) = descriptors
            elif "FDSTOREREMOVE" in told:
                os.close(self.kept.pop(told["FDNAME"]))
            elif "BARRIER" in told:
                os.close(descriptors[0])
            if "READY" in told:
                self._ready.set()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    manager = Systemd(tmp_path)
    yield manager
    manager.end(signal.SIGKILL)


def post(port: int, number: int) -> int:
    return asyncio.run(Client(port).post(b'{"device":"urn:http","id":%d}' % number)).code


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_arrives_while_the_agent_restarts_is_stored_by_the_next_one(
    systemd: Systemd, tmp_path: Path, number: signal.Signals
) -> None:
    (coap,), (http,) = ports.free(1, socket.SOCK_DGRAM), ports.free(1)
    configured(tmp_path, coap=f"127.0.0.1:{coap}", http=f"127.0.0.1:{http}")
    systemd.start()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sensor, ThreadPoolExecutor(1) as executor:
        sensor.connect(("127.0.0.1", coap))
        for restart in range(2):
            systemd.end(number)
            with pytest.raises(OSError, match="in use"), socket.socket() as thief:
                thief.bind(("127.0.0.1", http))
            request = wire.Request(b'{"device":"urn:coap","id":%d}' % restart, 50)
            sensor.send(request.datagram(restart, b"1"))
            posted = executor.submit(post, http, restart)
            systemd.start()
            sensor.settimeout(60)
            message = wire.parse(sensor.recv(2048))
            assert message is not None
            assert message.code_text == "2.04"
            assert posted.result(60) == 200
    devices = sorted(document["device"] for document in stored_documents(tmp_path / "state" / "events.db"))
    assert [device for device in devices if "oncegate" not in device] == ["urn:coap"] * 2 + ["urn:http"] * 2


def test_a_port_that_moves_is_kept_for_the_next_start_and_free_for_another_address(
    systemd: Systemd, tmp_path: Path
) -> None:
    before, after = ports.free(2, socket.SOCK_DGRAM)
    for coap in (before, after):
        configured(tmp_path, coap=f"127.0.0.1:{coap}", http="127.0.0.1:0")
        systemd.start()
        systemd.end(signal.SIGTERM)
    assert systemd.kept.keys() == {f"kept-SOCK_DGRAM-{after}", "kept-SOCK_STREAM-0"}
    configured(tmp_path, coap=f"[::]:{after}", http="")
    systemd.start()
    assert f"coap=[::]:{after}" in systemd.log()
    assert systemd.kept.keys() == {f"kept-SOCK_DGRAM-{after}"}


@pytest.mark.guarantee(3)
def test_an_agent_that_waits_for_a_free_inode_has_closed_ports_and_goes_on(systemd: Systemd, tmp_path: Path) -> None:
    (http,) = ports.free(1)
    with small_disk(tmp_path / "state", 24, "nr_inodes=12") as disk:
        configured(tmp_path, http=f"127.0.0.1:{http}")
        systemd.start()
        assert post(http, 1) == 200
        systemd.end(signal.SIGTERM)
        taken = use_up_inodes(disk)
        systemd.spawn()
        wait_until(lambda: "store=waiting" in systemd.log(), "the agent waits")
        with pytest.raises(OSError, match="refused"):
            post(http, 2)
        for file in taken:
            file.unlink()
        wait_until(lambda: systemd.log().count("agent=ready") == 2, "the agent goes on")
        assert systemd.log().count("store=waiting") == 1
        systemd.end(signal.SIGTERM)
        assert [one["id"] for one in stored_documents(disk / "events.db") if one["device"] == "urn:http"] == [1]


def test_two_ways_in_cannot_share_an_address() -> None:
    sockets, (port,) = Sockets({"NOTIFY_SOCKET": "/nowhere"}), ports.free(1)

    def open_again() -> socket.socket:
        return address.listen(f"127.0.0.1:{port}", sockets.listen)

    with open_again(), pytest.raises(BindError, match="in use"):
        open_again()
    sockets.check()
    with open_again():  # where the agent salvages its store, and goes on
        sockets.check()
    sockets.release()


@pytest.mark.parametrize("bound", ["0.0.0.0", "127.0.0.1"])
def test_a_socket_unit_is_used_if_it_fits_and_refused_if_not(systemd: Systemd, tmp_path: Path, bound: str) -> None:
    with socket.socket() as unit:
        unit.bind((bound, 0))
        port = unit.getsockname()[1]
        systemd.kept["oncegate.socket"] = unit.fileno()
        configured(tmp_path, http=f"127.0.0.1:{port if bound == '127.0.0.1' else 0}")
        if bound == "127.0.0.1":
            systemd.start()
            assert post(port, 1) == 200
        else:
            assert systemd.spawn().wait(60) == USAGE
            assert f"systemd passes SOCK_STREAM ('0.0.0.0', {port}) (oncegate.socket)" in systemd.log()


def test_a_passed_descriptor_that_is_no_socket_is_told(systemd: Systemd, tmp_path: Path) -> None:
    systemd.kept["fifo"], writing = os.pipe()
    configured(tmp_path)
    assert systemd.spawn().wait(60) == USAGE
    os.close(writing)
    assert "oncegate: systemd passes descriptor 3 (fifo), which is no socket" in systemd.log()
