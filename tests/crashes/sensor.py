"""A sensor that resends each event until it is acked, over CoAP and HTTP, and a fixed load of some requests."""

import http.client
import itertools
import json
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from random import Random

from simulators import wire

DEVICE = "urn:dev:mac:0000000000000001"
ANSWER_SECONDS_MAX = 0.4
PAUSE_SECONDS = 0.005
JSON_FORMAT = 50
COAP_BYTES_MAX = 900
"""Of a body; a longer one goes over HTTP."""
LOAD = ((1, 40), (1, 2_000), (2, 300), (40, 60), (1, 9_000), (1, 40), (3, 700), (1, 40))
"""The requests of the fixed load: how many events each has, and the bytes of their text."""


@dataclass(frozen=True, slots=True)
class Ports:
    coap: int
    http: int


class Sensor:
    """Sends the load from an id on, and records which events were acked."""

    def __init__(self, ports: Ports, first: int) -> None:
        chance = Random(first)
        numbers = itertools.count(first)
        self._requests: list[dict[int, str]] = [
            {next(numbers): chance.randbytes(size // 2).hex() for _ in range(count)} for count, size in LOAD
        ]
        self._ports = ports
        self._message_ids = itertools.count(1)
        self.texts = {number: text for request in self._requests for number, text in request.items()}
        """The texts of all events of the load."""
        self.acked: set[int] = set()

    def send(self, is_alive: Callable[[], bool], tries: int) -> None:
        """Send each request that is not acked yet, until it is, at most so often, or until the agent has ended."""
        for request in self._requests:
            if not self.acked.issuperset(request) and self._send(request, is_alive, tries):
                self.acked.update(request)

    def send_again(self, is_alive: Callable[[], bool], tries: int) -> None:
        """Send the first request once more."""
        self._send(self._requests[0], is_alive, tries)

    def _send(self, request: dict[int, str], is_alive: Callable[[], bool], tries: int) -> bool:
        for _ in range(tries):
            if not is_alive():
                return False
            if self._post(request):
                return True
            time.sleep(PAUSE_SECONDS)
        return False

    def _post(self, request: dict[int, str]) -> bool:
        events = [{"device": DEVICE, "id": number, "data": {"text": text}} for number, text in request.items()]
        body = json.dumps(events if len(events) > 1 else events[0]).encode()
        try:
            return self._coap(body) if len(body) <= COAP_BYTES_MAX else self._http(body)
        except (OSError, http.client.HTTPException):
            return False

    def _coap(self, body: bytes) -> bool:
        request = wire.Request(body, JSON_FORMAT)
        message_id = next(self._message_ids)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sensor:
            sensor.connect(("::1", self._ports.coap))
            sensor.settimeout(ANSWER_SECONDS_MAX)
            sensor.send(request.datagram(message_id, message_id.to_bytes(4, "big")))
            message = wire.parse(sensor.recv(2048))
        return message is not None and message.code_text == "2.04"

    def _http(self, body: bytes) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", self._ports.http, timeout=ANSWER_SECONDS_MAX)) as link:
            link.request("POST", "/api/v1/events", body, {"Content-Type": "application/json"})
            response = link.getresponse()
            response.read()
            return response.status == 200
