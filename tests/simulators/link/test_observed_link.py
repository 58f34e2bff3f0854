import asyncio
import os
import signal
import subprocess
import sys
from typing import Self

import pytest

from simulators import wire
from simulators.observed_link.observer import MEANINGS, Observer
from simulators.services import ports
from tests.simulators.link.test_link import open_peer
from tests.simulators.run.minimal_gateway import BAD_REQUEST, CHANGED, UNAVAILABLE, acked, minimal_gateway
from tests.support.waiting import until_count

SENSOR = "[::1]:5000"
WAIT_60 = b"\xd1\x01\x3c"
"""Max-Age of 60 s."""


class Sensor:
    """Sends and is answered at moments of the test; its calls can be chained."""

    def __init__(self) -> None:
        self.observer = Observer()
        self._sent = b""

    def send(self, now: float, event: str = "1", message_id: int = 1, kind: int = wire.CON) -> Self:
        self._sent = wire.Request(event.encode(), 50).datagram(message_id, bytes((message_id,)), kind)
        self.observer.sent(SENSOR, self._sent, now)
        return self

    def answered(self, now: float, code: int = CHANGED, more: bytes = b"", kind: int = wire.ACK) -> Self:
        [answer] = acked(self._sent, code)
        self.observer.delivered(SENSOR, bytes((0x41 | kind << 4,)) + answer[1:] + more, now)
        return self

    def exchange(
        self, now: float, event: str = "1", message_id: int = 1, code: int = CHANGED, more: bytes = b""
    ) -> Self:
        return self.send(now, event, message_id).answered(now + 0.1, code, more)

    def noise(self, now: float) -> Self:
        self.observer.sent(SENSOR, b"\x00", now)
        return self


@pytest.mark.parametrize(
    ("sensor", "events", "expected"),
    [
        (Sensor().exchange(0, "1").exchange(10, "2"), None, {"Message ID used again"}),
        (
            Sensor().exchange(0, code=BAD_REQUEST).exchange(60, message_id=2, code=BAD_REQUEST),
            None,
            {"refused", "resent though refused"},
        ),
        (Sensor().exchange(0, code=UNAVAILABLE, more=WAIT_60).exchange(30, message_id=2), None, {"resent too early"}),
        (Sensor().exchange(0).exchange(30, message_id=2), None, {"resent though acknowledged"}),
        (Sensor().send(0).exchange(0.5), None, {"retransmitted too early"}),
        (Sensor().send(0).send(2.5).send(5).exchange(15), None, {"retransmitted without backoff"}),
        (Sensor().send(0, "1").exchange(10, "2", 2), None, {"not acknowledged"}),
        (Sensor().exchange(0).noise(1), None, {"no CoAP message"}),
        (Sensor().send(0, kind=wire.NON).answered(0.1, kind=wire.NON), None, {"not confirmable"}),
        (Sensor().exchange(0, "1").exchange(1, "1 later", 2), 1, {"more contents than events"}),
        (Sensor().exchange(0, "1").exchange(1, "1 later", 2), 3, {"fewer contents than events"}),
    ],
)
def test_what_a_sensor_does_wrong_is_named(sensor: Sensor, events: int | None, expected: set[str]) -> None:
    sensor.observer.finish(events)
    assert {kind for kind, _ in sensor.observer.findings} == expected <= MEANINGS.keys()


def test_a_sensor_that_resends_as_it_should_is_not_accused() -> None:
    sensor = Sensor().send(0).send(2.4).send(7.2).exchange(16.8)
    sensor.send(100, "2", 2).exchange(200, "2", 3, code=UNAVAILABLE, more=WAIT_60).exchange(270, "2", 4)
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
