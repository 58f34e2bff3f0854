"""The front of the socket: reads it, serves the ordinary POST itself, and leaves all else to the odd path."""

from __future__ import annotations

import asyncio

from agent.coap.answer import BODY_TOO_LARGE
from agent.coap.counters import Counters
from agent.coap.endpoint import Endpoint
from agent.coap.exchange import Exchanges
from agent.coap.fast_path import ORDINARY_OPTIONS_BYTES_MAX, read_ordinary
from agent.coap.message import ACKNOWLEDGEMENT, EMPTY, HEADER_BYTES, POST, VERSION_1, MessageFormatError, split
from agent.coap.options import media_of
from agent.coap.slow_path.requests import OddPath
from agent.coap.udp import UdpSocket
from agent.delivery import Delivery, Receive
from agent.pace import TURN_SECONDS_MAX

DATAGRAMS_PER_TURN = 64
"""Read at most before the loop gets to its other work."""

_VERSION_BITS = 0xC0


class Front:
    """The dispatch of datagrams. With `fast` off, aiocoap serves everything."""

    def __init__(
        self,
        udp: UdpSocket,
        receive: Receive,
        exchanges: Exchanges,
        odd: OddPath,
        counters: Counters,
        *,
        body_bytes_max: int,
        fast: bool,
    ) -> None:
        self._udp = udp
        self._receive = receive
        self._exchanges = exchanges
        self._odd = odd
        self._counters = counters
        self._body_bytes_max = body_bytes_max
        self._fast = fast
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Start reading."""
        self._loop.add_reader(self._udp.descriptor, self._read)

    def close(self) -> None:
        """Read no more; what comes now waits in the socket."""
        self._loop.remove_reader(self._udp.descriptor)

    def _read(self) -> None:
        """Read for one turn of the loop; what is left then waits in the socket, which calls again."""
        end = self._loop.time() + TURN_SECONDS_MAX
        for _ in range(DATAGRAMS_PER_TURN):
            received = self._udp.receive()
            if received is None:
                return
            self._dispatch(*received)
            if self._loop.time() >= end:
                return

    def _dispatch(self, datagram: bytes, endpoint: Endpoint, truncated: bool) -> None:
        if len(datagram) < HEADER_BYTES or datagram[0] & _VERSION_BITS != VERSION_1:
            self._counters.malformed += 1
        elif endpoint.group:
            self._counters.group += 1
        elif truncated:
            self._odd.take_truncated(datagram, endpoint)
        elif datagram[1] == EMPTY and datagram[0] & ACKNOWLEDGEMENT:
            self._settle(datagram, endpoint)
        elif datagram[1] != POST or not self._fast or not self._take(datagram, endpoint):
            self._odd.take(datagram, endpoint)

    def _take(self, datagram: bytes, endpoint: Endpoint) -> bool:
        """Serve an ordinary POST; False where it is none."""
        if datagram[0] & ACKNOWLEDGEMENT:
            return False
        try:
            head, options, body = split(datagram)
        except MessageFormatError:
            return False
        ordinary = read_ordinary(options) if len(options) <= ORDINARY_OPTIONS_BYTES_MAX else None
        if ordinary is None:
            return False
        proof = endpoint.proof(datagram)
        now = self._loop.time()
        if self._exchanges.repeated(proof, head, endpoint, now):
            return True
        exchange = self._exchanges.open(endpoint, head, proof, now)
        if exchange is None:
            return True
        self._counters.fast += 1
        exchange.asks_time = ordinary.asks_time
        if len(body) > self._body_bytes_max:
            exchange.respond(BODY_TOO_LARGE)
            return True
        media = media_of(ordinary.content_format, body)
        delivery = Delivery(body, media, "coap", endpoint.sender, None, ordinary.query, proof)
        self._receive(delivery, exchange.respond)
        return True

    def _settle(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Take note of an ACK or Reset."""
        if len(datagram) != HEADER_BYTES:
            self._counters.malformed += 1
        elif not self._exchanges.settle(endpoint, datagram[2:4]):
            self._odd.settle(datagram, endpoint)
