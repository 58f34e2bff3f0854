"""The OSCORE load: requests of one sensor, protected in advance by aiocoap's client side."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from aiocoap.numbers.types import CON  # type: ignore[import-untyped]
from aiocoap.oscore import FilesystemSecurityContext  # type: ignore[import-untyped]

from agent.cli.sensor.credentials import sensor_side
from agent.coap.oscore.credentials import create_credential
from benchmarks import report
from benchmarks.agent import loads
from benchmarks.agent.contenders import Server
from benchmarks.agent.loads import Result

DEVICE = "urn:dev:mac:00158d0000000001"
OUTSTANDING = 8
"""Less than the size of the replay window (RFC 8613 section 3.2.2: 32)."""
EVENTS = 250
"""Within the gateway's rate limit of one second for requests that aiocoap serves, such as OSCORE."""
_MESSAGE_ID = slice(2, 4)


def credentials(folder: Path) -> Path:
    """Create a sensor's credentials: the gateway's directory, and the sensor's side in `sensor` beside it."""
    directory, sensor = folder / "credentials", folder / "sensor"
    for each in (directory, sensor):
        each.mkdir(parents=True)
    _, credential = create_credential(directory, DEVICE, relay=False)
    (sensor / "settings.json").write_text(json.dumps(sensor_side(credential)))
    return directory


def post(server: Server, folder: Path) -> Result:
    """Post events with a number of requests in flight; stored events count, since the outer code is always 2.04."""
    sensor = Sensor(FilesystemSecurityContext(str(folder / "sensor")), server.port)
    with closing(sensor):
        sensor.introduce()
        requests = [sensor.protect(loads.event(), number)[0] for number in range(1, EVENTS + 1)]
        stored, before, start = server.stored(), server.cpu_seconds(), time.monotonic()
        latencies = list(_answered(sensor.socket, requests))
        elapsed = time.monotonic() - start
    accepted, cpu_seconds = server.stored() - stored, server.cpu_seconds() - before
    return Result(accepted, elapsed, cpu_seconds, median(latencies), report.p99(latencies))


def _answered(sensor: socket.socket, requests: Sequence[bytes]) -> Iterator[float]:
    """Send requests with some of them in flight, and return each one's time to the answer in ms."""
    waiting = iter(requests)
    sent: dict[bytes, float] = {}
    for _ in requests:
        while len(sent) < OUTSTANDING and (request := next(waiting, None)) is not None:
            sent[request[_MESSAGE_ID]] = time.monotonic()
            sensor.send(request)
        answer = sensor.recv(1500)
        yield (time.monotonic() - sent.pop(answer[_MESSAGE_ID])) * 1e3


class Sensor:
    """A sensor's socket and its security context."""

    def __init__(self, context: FilesystemSecurityContext, port: int) -> None:
        self._context = context
        self.socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self.socket.connect(("::1", port))
        self.socket.settimeout(loads.PATIENCE_SECONDS)

    def close(self) -> None:
        """Close the socket, without writing the context's final state."""
        self.socket.close()
        self._context.lockfile.release()
        self._context.lockfile = None

    def introduce(self) -> None:
        """Prove freshness by Echo (RFC 9175), which the gateway requires after each start."""
        echo = None
        for number in (65_534, 65_535):
            request, reference = self.protect(loads.event(), number, echo)
            self.socket.send(request)
            answer, _ = self._context.unprotect(Message.decode(self.socket.recv(1500)), reference)
            echo = answer.opt.echo
            if echo is None:
                return

    def protect(self, payload: bytes, message_id: int, echo: bytes | None = None) -> tuple[bytes, object]:
        """Return a protected request, and the data needed to unprotect its answer."""
        message = Message(code=Code.POST, uri_path=("e",), payload=payload, content_format=50, echo=echo)
        protected, reference = self._context.protect(message)
        protected.mtype, protected.mid, protected.token = CON, message_id, message_id.to_bytes(2, "big")
        protected.remote = None
        return protected.encode(), reference
