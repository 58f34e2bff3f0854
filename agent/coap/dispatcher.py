"""Dispatches datagrams: the fast path serves plain POSTs, everything else goes to aiocoap."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from agent.coap.answer import BODY_TOO_LARGE, TOO_MANY, refusal_of
from agent.coap.counters import Counters
from agent.coap.endpoint import Endpoint
from agent.coap.exchange import Exchanges
from agent.coap.fast_path import PLAIN_OPTIONS_BYTES_MAX, read_plain_post
from agent.coap.message import ACKNOWLEDGEMENT, EMPTY, HEADER_BYTES, POST, VERSION_1, MessageFormatError, split
from agent.coap.options import media_of
from agent.coap.slow_path.requests import SlowPath
from agent.coap.udp import Received, UdpSocket
from agent.delivery import Delivery, Receive
from agent.pace import TURN_SECONDS_MAX

_VERSION_BITS: Final = 0xC0


class Dispatcher:
    """Reads the socket and dispatches its datagrams. With `fast` off, aiocoap serves everything."""

    def __init__(
        self,
        udp: UdpSocket,
        receive: Receive,
        exchanges: Exchanges,
        slow_path: SlowPath,
        counters: Counters,
        *,
        body_bytes_max: int,
        fast: bool,
    ) -> None:
        self._udp = udp
        self._receive = receive
        self._exchanges = exchanges
        self._slow_path = slow_path
        self._counters = counters
        self._body_bytes_max = body_bytes_max
        self._fast = fast
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Received] = deque()

    def open(self) -> None:
        """Start reading."""
        self._loop.add_reader(self._udp.descriptor, self._read)

    def close(self) -> None:
        """Stop reading; later datagrams wait in the socket."""
        self._loop.remove_reader(self._udp.descriptor)

    async def finished(self) -> None:
        """Wait until all datagrams that have been read are dispatched."""
        while self._waiting:  # noqa: ASYNC110  # bounded by one read; each turn of the loop dispatches some
            await asyncio.sleep(0)

    def _read(self) -> None:
        if not self._waiting:  # else their turn follows
            self._waiting.extend(self._udp.receive())
            self._dispatch_waiting()

    def _dispatch_waiting(self) -> None:
        """Dispatch datagrams for one turn of the loop; the others follow in the next."""
        waiting, clock = self._waiting, self._loop.time
        now = clock()
        end = now + TURN_SECONDS_MAX
        try:
            while waiting and now < end:
                datagram, endpoint, truncated = waiting.popleft()
                self._dispatch(datagram, endpoint, truncated, now)
                now = clock()
        finally:  # also after an error, which the loop logs
            if waiting:
                self._loop.call_soon(self._dispatch_waiting)

    def _dispatch(self, datagram: bytes, endpoint: Endpoint, truncated: bool, now: float) -> None:
        if len(datagram) < HEADER_BYTES or datagram[0] & _VERSION_BITS != VERSION_1:
            self._counters.malformed += 1
        elif endpoint.group:
            self._counters.group += 1
        elif truncated:
            self._slow_path.take_truncated(datagram, endpoint)
        elif datagram[1] == EMPTY and datagram[0] & ACKNOWLEDGEMENT:
            self._settle(datagram, endpoint)
        elif datagram[1] != POST or not self._fast or not self._take(datagram, endpoint, now):
            self._slow_path.take(datagram, endpoint)

    def _take(self, datagram: bytes, endpoint: Endpoint, now: float) -> bool:
        """Serve a plain POST; return False for any other message."""
        if datagram[0] & ACKNOWLEDGEMENT:
            return False
        try:
            head, options, body = split(datagram)
        except MessageFormatError:
            return False
        post = read_plain_post(options) if len(options) <= PLAIN_OPTIONS_BYTES_MAX else None
        if post is None:
            return False
        retransmission_key = endpoint.retransmission_key(datagram)
        if self._exchanges.answer_retransmission(retransmission_key, head, endpoint, now):
            return True
        exchange = self._exchanges.open(endpoint, head, retransmission_key, now)
        if exchange is None:
            self._counters.refuse("coap", endpoint.sender, refusal_of(TOO_MANY.code, TOO_MANY.payload))
            return True
        self._counters.fast += 1
        exchange.asks_time = post.asks_time
        if len(body) > self._body_bytes_max:
            self._counters.refuse("coap", endpoint.sender, BODY_TOO_LARGE)
            exchange.respond(BODY_TOO_LARGE)
            return True
        media = media_of(post.content_format, body)
        delivery = Delivery(body, media, "coap", endpoint.sender, None, post.query, retransmission_key)
        self._receive(delivery, exchange.respond)
        return True

    def _settle(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Process an ACK or Reset."""
        if len(datagram) != HEADER_BYTES:
            self._counters.malformed += 1
        elif not self._exchanges.settle(endpoint, datagram[2:4]):
            self._slow_path.settle(datagram, endpoint)
