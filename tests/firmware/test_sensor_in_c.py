"""The example sensor in C, compiled and run against an agent over a link that loses datagrams."""

from __future__ import annotations

import selectors
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.store.layout import FILE_NAME
from simulators.services.process import Process
from tests.docs.pages import ROOT
from tests.firmware import wakings
from tests.support.agent_process import stored_documents

EXAMPLES = ROOT / "docs" / "examples"
DEVICE = "urn:dev:mac:00158d0001a2b3c4"
Lose = Callable[[int, bool], bool]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Process]:
    with wakings.agent(tmp_path / "oncegate.toml", '[devices]\ndeny = ["urn:stranger"]\n') as process:
        yield process


@contextmanager
def link(agent: Process, lose: Lose) -> Iterator[int]:
    """Forward datagrams between one sensor and the agent; `lose` receives a datagram's number and its direction."""
    over = threading.Event()
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        near.bind(("::1", 0))
        far.connect((wakings.HOST, wakings.coap_port(agent)))

        def carry() -> None:
            sensor, numbers = None, {True: 0, False: 0}
            selector = selectors.DefaultSelector()
            for side in (near, far):
                selector.register(side, selectors.EVENT_READ)
            while not over.is_set():
                for key, _ in selector.select(0.1):
                    datagram, sender = key.fileobj.recvfrom(2048)  # type: ignore[union-attr]  # it is a socket
                    is_answer = key.fileobj is far
                    sensor = sensor if is_answer else sender
                    numbers[is_answer] += 1
                    if lose(numbers[is_answer], is_answer):
                        continue
                    if not is_answer:
                        far.send(datagram)
                    elif sensor is not None:
                        near.sendto(datagram, sensor)

        thread = threading.Thread(target=carry)
        thread.start()
        try:
            yield near.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.fixture(scope="module")
def sensor_in_c(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler; run: sudo apt-get install gcc libc6-dev")
    program = tmp_path_factory.mktemp("c") / "sensor"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    subprocess.run([compiler, *flags, "-o", program, EXAMPLES / "sensor.c"], check=True)
    return program


@pytest.mark.parametrize(
    "lose",
    [lambda number, is_answer: False, lambda number, is_answer: number == 1],
    ids=["a good link", "the first request and the first answer are lost"],
)
def test_the_sensor_in_c_brings_its_event_once(sensor_in_c: Path, agent: Process, tmp_path: Path, lose: Lose) -> None:
    with link(agent, lose) as port:
        command = [str(sensor_in_c), "::1", str(port), DEVICE, "3", "17", "21.1"]
        first = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (first.returncode, first.stdout, again.stdout) == (0, "2.04\n", "2.04\n")
    (event,) = (one for one in stored_documents(tmp_path / "state" / FILE_NAME) if one["device"] == DEVICE)
    assert (event["boot"], event["id"], event["data"]) == (3, 17, {"temperature": 21.1})


@pytest.mark.parametrize(("device", "status", "said"), [("urn:oncegate:x", 2, "4.00\n"), ("urn:stranger", 1, "4.03\n")])
def test_the_sensor_in_c_says_what_it_has_to_keep(
    sensor_in_c: Path, agent: Process, device: str, status: int, said: str
) -> None:
    with link(agent, lambda number, is_answer: False) as port:
        refused = [str(sensor_in_c), "::1", str(port), device, "3", "17", "21.5"]
        done = subprocess.run(refused, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (status, said)
