"""A sensor on a real socket; the test controls each datagram."""

import asyncio
import socket
from dataclasses import dataclass
from typing import Self

from agent.coap.message import Option, uint, write_options

ACK, CON, NON, RST = 0x20, 0x00, 0x10, 0x30
EMPTY, GET, POST, PUT = 0, 1, 2, 3
CHANGED, CONTENT, CONTINUE = 0x44, 0x45, 0x5F
BODY = b"\xa1\x64data\xa1\x61x\x01"

URI_PATH, CONTENT_FORMAT, URI_QUERY, BLOCK1, SIZE1 = 11, 12, 15, 27, 60
LOOP_TURNS = 20
"""More than aiocoap needs between a request and its answer."""


def datagram(
    kind: int = CON,
    code: int = POST,
    mid: int = 1,
    token: bytes = b"\x01",
    options: tuple[tuple[int, bytes], ...] = (),
    payload: bytes = b"",
) -> bytes:
    """Build a message; `options` in any order."""
    ordered = tuple(Option(*option) for option in sorted(options, key=lambda option: option[0]))
    head = bytes((0x40 | kind | len(token), code)) + mid.to_bytes(2, "big") + token
    return head + write_options(ordered) + (b"\xff" + payload if payload else b"")


def post(
    mid: int = 1,
    token: bytes = b"\x01",
    payload: bytes = BODY,
    kind: int = CON,
    path: str = "e",
    content_format: int | None = 60,
    options: tuple[tuple[int, bytes], ...] = (),
) -> bytes:
    given = () if content_format is None else ((CONTENT_FORMAT, uint(content_format)),)
    return datagram(kind, POST, mid, token, ((URI_PATH, path.encode()), *given, *options), payload)


@dataclass(frozen=True, slots=True)
class Response:
    """A message from the server, parsed without the server's own code."""

    kind: int
    code: int
    mid: int
    token: bytes
    rest: bytes
    """Options and payload."""

    @classmethod
    def of(cls, raw: bytes) -> Self:
        length = raw[0] & 15
        return cls(raw[0] & 0x30, raw[1], int.from_bytes(raw[2:4], "big"), raw[4 : 4 + length], raw[4 + length :])


class Sensor:
    """One UDP socket, connected to the server: an answer from another address would not arrive."""

    def __init__(self, port: int, host: str = "::1", zone: int = 0, source: str = "") -> None:
        self._to = (host, port, 0, zone) if ":" in host else (host, port)
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        if source:  # or else the kernel may give the port of an earlier socket again
            self._socket.bind((source, 0))

    def __enter__(self) -> Self:
        self._socket.setblocking(False)
        self._socket.connect(self._to)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def send(self, raw: bytes) -> None:
        self._socket.send(raw)

    async def receive(self) -> Response:
        return Response.of(await self.receive_raw())

    async def receive_raw(self) -> bytes:
        async with asyncio.timeout(60):
            return await asyncio.get_running_loop().sock_recv(self._socket, 65_535)

    async def ask_raw(self, raw: bytes) -> bytes:
        self.send(raw)
        return await self.receive_raw()

    async def receive_all(self, mid: int = 0xFFFF) -> list[Response]:
        """Return the messages received until a ping is answered, which is processed last."""
        self.send(datagram(CON, EMPTY, mid, b""))
        response: list[Response] = []
        while (message := await self.receive()) != Response(RST, EMPTY, mid, b"", b""):
            response.append(message)
        return response

    async def ask_all(self, raw: bytes) -> list[Response]:
        """Return all answers, also those that come some turns of the loop later; some datagrams have none."""
        self.send(raw)
        mid = int.from_bytes(raw[2:4], "big")
        responses = await self.receive_all(mid + 1 & 0xFFFF)
        for _ in range(LOOP_TURNS):
            await asyncio.sleep(0)
        return responses + await self.receive_all(mid + 2 & 0xFFFF)

    async def ask(self, raw: bytes) -> Response:
        self.send(raw)
        return await self.receive()

    async def expect_silence(self) -> None:
        """Assert that no message sent so far was answered: the server processes in order, and the ping is the last."""
        assert await self.receive_all() == []
