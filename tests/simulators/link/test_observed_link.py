"""What a sensor does wrong on a link is named; what it does right is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from simulators import wire
from simulators.observed_link.observer import MEANINGS, Observer
from simulators.services import ports
from tests.simulators.link.test_link import open_peer
from tests.simulators.run.minimal_gateway import BAD_REQUEST, UNAVAILABLE, acked, minimal_gateway
from tests.support.waiting import until_count

SENSOR = "[::1]:5000"
SECONDS_MAX = 60


class Sensor:
    """Sends and is answered at moments of the test."""

    def __init__(self) -> None:
        self.observer = Observer()

    def send(self, now: float, event: str = "1", message_id: int = 1, kind: int = wire.CON) -> bytes:
        datagram = wire.Request(event.encode(), 50).datagram(message_id, bytes((message_id,)), kind)
        self.observer.sent(SENSOR, datagram, now)
        return datagram

    def exchange(self, now: float, event: str = "1", message_id: int = 1, code: int = 0x44, more: bytes = b"") -> None:
        [answer] = acked(self.send(now, event, message_id), code)
        self.observer.delivered(SENSOR, answer + more, now + 0.1)


def restarted(sensor: Sensor) -> None:
    sensor.exchange(0, "1")
    sensor.exchange(10, "2")


def stubborn(sensor: Sensor) -> None:
    sensor.exchange(0, code=BAD_REQUEST, more=b"\xffno field data")
    sensor.exchange(60, message_id=2, code=BAD_REQUEST)


def impatient(sensor: Sensor) -> None:
    sensor.exchange(0, code=UNAVAILABLE, more=b"\xd1\x01\x3c")  # Max-Age 60
    sensor.exchange(30, message_id=2)


def forgetful(sensor: Sensor) -> None:
    sensor.exchange(0)
    sensor.exchange(30, message_id=2)


def hasty(sensor: Sensor) -> None:
    sensor.send(0)
    sensor.exchange(0.5)


def monotonous(sensor: Sensor) -> None:
    for moment in (0, 2.5, 5):
        sensor.send(moment)
    sensor.exchange(15)


def careless(sensor: Sensor) -> None:
    sensor.send(0, "1")
    sensor.exchange(10, "2", 2)


def noisy(sensor: Sensor) -> None:
    sensor.exchange(0)
    sensor.observer.sent(SENSOR, b"\x00", 1)


def hopeful(sensor: Sensor) -> None:
    [answer] = acked(sensor.send(0, kind=wire.NON))
    sensor.observer.delivered(SENSOR, b"\x51" + answer[1:], 0.1)


def restamping(sensor: Sensor) -> None:
    sensor.exchange(0, "1")
    sensor.exchange(1, "1 later", 2)


@pytest.mark.parametrize(
    ("wrong", "events", "expected"),
    [
        (restarted, None, {"Message ID used again"}),
        (stubborn, None, {"refused", "resent though refused"}),
        (impatient, None, {"resent too early"}),
        (forgetful, None, {"resent though acknowledged"}),
        (hasty, None, {"retransmitted too early"}),
        (monotonous, None, {"retransmitted without backoff"}),
        (careless, None, {"not acknowledged"}),
        (noisy, None, {"no CoAP message"}),
        (hopeful, None, {"not confirmable"}),
        (restamping, 1, {"more contents than events"}),
        (restamping, 3, {"fewer contents than events"}),
    ],
)
def test_what_a_sensor_does_wrong_is_named(
    wrong: Callable[[Sensor], None], events: int | None, expected: set[str]
) -> None:
    sensor = Sensor()
    wrong(sensor)
    sensor.observer.finish(events)
    assert {kind for kind, _ in sensor.observer.findings} == expected <= MEANINGS.keys()


def test_a_sensor_that_resends_as_it_should_is_not_accused() -> None:
    sensor = Sensor()
    for moment in (0, 2.4, 7.2):
        sensor.send(moment)
    sensor.exchange(16.8)
    sensor.send(100, "2", 2)
    sensor.exchange(200, "2", 3, code=UNAVAILABLE, more=b"\xd1\x01\x3c")
    sensor.exchange(270, "2", 4)
    sensor.exchange(300, "3", 1)  # its Message ID is free again
    sensor.observer.finish(3)
    assert not sensor.observer.findings
    assert sensor.observer.sensors[SENSOR.rpartition(":")[0]].acked == 3


async def test_the_command_carries_the_sensors_requests_and_answers_and_says_what_is_wrong() -> None:
    (port,) = ports.free(1)

    def answer(request: bytes) -> list[bytes]:
        return acked(request) if b"good" in request else [acked(request, BAD_REQUEST)[0] + b"\xffunknown field"]

    async with minimal_gateway(answer) as gateway:
        command = [sys.executable, "-m", "simulators.cli", "link", "--target", f"coap://[::1]:{gateway.address[1]}"]
        command += ["--listen", f"[::1]:{port}", "--seed", "1"]
        environment = {**os.environ, "COLUMNS": "120"}
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS_MAX):
            await process.stdout.readline()
            transport, peer = await open_peer(("::1", port))
            for number, event in enumerate(("good", "bad")):
                transport.sendto(wire.Request(event.encode(), 50).datagram(number, b"t"))
                await until_count(lambda: len(peer.heard), number + 1, "answers")
            transport.close()
            process.send_signal(signal.SIGINT)
            printed = (await process.stdout.read()).decode()
        assert await process.wait() == 1
    assert "refused: 1: the gateway refuses the request for good" in printed
    assert "1 x 4.00 unknown field" in printed
