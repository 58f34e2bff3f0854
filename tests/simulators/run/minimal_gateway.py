"""A minimal CoAP server over UDP with scripted answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

CHANGED = 0x44
BAD_REQUEST = 0x80
UNAVAILABLE = 0xA3

Answer = Callable[[bytes], Sequence[bytes]]
"""Returns the datagrams to send back for a request."""


def acked(request: bytes, code: int = CHANGED) -> list[bytes]:
    """Return a piggybacked response (RFC 7252 section 5.2.1)."""
    return [bytes((0x60 | len(token(request)), code)) + request[2:4] + token(request)]


def separate(request: bytes) -> list[bytes]:
    """Return an empty ACK and a separate response (RFC 7252 section 5.2.2)."""
    return [b"\x60\x00" + request[2:4], bytes((0x40 | len(token(request)), CHANGED)) + b"\xab\xcd" + token(request)]


def token(datagram: bytes) -> bytes:
    return datagram[4 : 4 + (datagram[0] & 15)]


class MinimalGateway(asyncio.DatagramProtocol):
    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[Any, bytes]] = []
        self.acks: list[bytes] = []
        self._answer = answer
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # the selector's transport is no subclass of it

    @property
    def address(self) -> tuple[str, int]:
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert self._transport is not None
        if data[1] == 0:
            self.acks.append(data)
            return
        self.requests.append((addr, data))
        for datagram in self._answer(data):
            self._transport.sendto(datagram, addr)


@asynccontextmanager
async def minimal_gateway(answer: Answer = acked) -> AsyncIterator[MinimalGateway]:
    loop = asyncio.get_running_loop()
    transport, gateway = await loop.create_datagram_endpoint(lambda: MinimalGateway(answer), local_addr=("::1", 0))
    try:
        yield gateway
    finally:
        transport.close()
