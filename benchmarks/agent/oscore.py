"""The OSCORE load: requests of one sensor, protected in advance."""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from agent.cli.sensor import senders
from agent.cli.sensor.credentials import sensor_side
from agent.cli.sensor.protection import SensorContext, open_context
from agent.cli.sensor.senders import Request, Target, waits
from agent.coap.oscore.credentials import create_credential
from benchmarks import report
from benchmarks.agent import loads
from benchmarks.agent.contenders import Server
from benchmarks.agent.loads import Result
from simulators.services.error import ServiceError

DEVICE = "urn:dev:mac:00158d0000000001"
OUTSTANDING = 8
"""Less than the size of the replay window (RFC 8613 section 3.2.2: 32)."""
EVENTS = 250
"""Within the gateway's rate limit of one second for requests that aiocoap serves, such as OSCORE."""
JSON = 50
_TOKEN = slice(4, 8)


def credentials(folder: Path) -> Path:
    """Create a sensor's credentials: the gateway's directory, and the sensor's file beside it."""
    directory = folder / "credentials"
    directory.mkdir(parents=True)
    _, credential = create_credential(directory, DEVICE, relay=False)
    (folder / "sensor.json").touch(mode=0o600)
    (folder / "sensor.json").write_text(json.dumps(sensor_side(credential)))
    return directory


def post(server: Server, folder: Path) -> Result:
    """Post events with a number of requests in flight; stored events count, since the outer code is always 2.04."""
    address = ("::1", server.port)
    with (
        open_context(folder / "sensor.json") as context,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sensor,
    ):
        _introduce(context, Target(*address))
        sensor.connect(address)
        sensor.settimeout(loads.PATIENCE_SECONDS)
        requests = [_sealed(context)[0].datagram for _ in range(EVENTS)]
        stored, before, start = server.stored(), server.cpu_seconds(), time.monotonic()
        latencies = list(_answered(sensor, requests))
        elapsed = time.monotonic() - start
    accepted, cpu_seconds = server.stored() - stored, server.cpu_seconds() - before
    return Result(accepted, elapsed, cpu_seconds, report.p99(latencies))


def _introduce(context: SensorContext, target: Target) -> None:
    """Prove freshness by Echo (RFC 9175), which the gateway requires after each start."""
    challenged = True
    while challenged:
        request, reference = _sealed(context)
        reply = request.exchange(target, waits(4, Random()), print)
        if reply is None:
            raise ServiceError("oscore: no answer")
        _, challenged = context.open(reply, reference)


def _sealed(context: SensorContext) -> tuple[Request, Any]:
    """Return a protected request with a new event, and the data needed to open its answer."""
    message, reference = context.seal(senders.post(loads.event(), JSON))
    return Request(message), reference


def _answered(sensor: socket.socket, requests: Sequence[bytes]) -> Iterator[float]:
    """Send requests with some of them in flight, and yield each one's time to the answer in ms."""
    waiting = iter(requests)
    sent: dict[bytes, float] = {}
    for _ in requests:
        while len(sent) < OUTSTANDING and (request := next(waiting, None)) is not None:
            sent[request[_TOKEN]] = time.monotonic()
            sensor.send(request)
        answer = sensor.recv(1500)
        yield (time.monotonic() - sent.pop(answer[_TOKEN])) * 1e3
