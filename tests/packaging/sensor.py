"""A sensor of the tests of packages, and the events that a store has of it."""

import os
import socket
from pathlib import Path

from agent.store.layout import FILE_NAME
from simulators import wire
from tests.support.agent_process import stored_documents
from tests.support.waiting import wait_until


class Sensor:
    """Sends events one after the other, and records which were acked."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._socket.connect(("::1", port))
        self._socket.settimeout(1)
        self._bodies: dict[int, bytes] = {}
        self._requests = 0
        self.acked: set[int] = set()

    def close(self) -> None:
        self._socket.close()

    def send(self, size: int = 0) -> str:
        """Send an event with so many bytes of random text; return the answer's code, empty without one."""
        number = len(self._bodies) + 1
        text = os.urandom(size // 2).hex().encode()  # the store could compress a text that repeats
        body = b'{"device":"urn:dev:mac:0000000000000001","id":%d,"data":{"x":"%s"}}' % (number, text)
        self._bodies[number] = body
        return self.send_again(number)

    def send_again(self, number: int) -> str:
        """Send an event again, in a new request; return the answer's code."""
        self._requests += 1
        token = self._requests.to_bytes(4, "big")
        try:
            self._socket.send(wire.Request(self._bodies[number], 50).datagram(self._requests % 65_536, token))
            message = wire.parse(self._socket.recv(2048))
            while message is None or message.token != token:  # a late answer to an earlier request
                message = wire.parse(self._socket.recv(2048))
        except (TimeoutError, ConnectionRefusedError):
            return ""
        if message.code_text == "2.04":
            self.acked.add(number)
        return message.code_text

    def send_until(self, code: str, size: int = 0) -> None:
        wait_until(lambda: self.send(size) == code, f"an event is answered with {code}", 300)


def ids_in(folder: Path) -> list[int]:
    """Return the ids of the sensors' events in a store."""
    return [document["id"] for document in stored_documents(folder / FILE_NAME) if document["via"] == "coap"]
