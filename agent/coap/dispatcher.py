"""Dispatches datagrams: the fast path serves plain POSTs of events, everything else goes to aiocoap."""

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Final, NamedTuple

from agent.coap.answer import BODY_TOO_LARGE, TOO_MANY, refusal_of
from agent.coap.counters import Counters
from agent.coap.exchange import Exchanges
from agent.coap.message import (
    ACKNOWLEDGEMENT,
    EMPTY,
    HEADER_BYTES,
    POST,
    VERSION_1,
    MessageFormatError,
    QueryError,
    media_of,
    read_options,
    read_query,
    split,
)
from agent.coap.slow_path.requests import SlowPath
from agent.coap.udp import Endpoint, Received, UdpSocket
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
            self._slow_path.refuse_truncated(datagram, endpoint)
        elif datagram[1] == EMPTY and datagram[0] & ACKNOWLEDGEMENT:
            self._stop_retransmitting(datagram, endpoint)
        elif datagram[1] != POST or not self._fast or not self._serve_post(datagram, endpoint, now):
            self._slow_path.enqueue(datagram, endpoint)

    def _serve_post(self, datagram: bytes, endpoint: Endpoint, now: float) -> bool:
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
            self._exchanges.finish(exchange, BODY_TOO_LARGE)
            return True
        media = media_of(post.content_format, body)
        delivery = Delivery(body, media, "coap", endpoint.sender, None, post.query, retransmission_key)
        self._receive(delivery, partial(self._exchanges.finish, exchange))
        return True

    def _stop_retransmitting(self, datagram: bytes, endpoint: Endpoint) -> None:
        if len(datagram) != HEADER_BYTES:
            self._counters.malformed += 1
        elif not self._exchanges.separate.stop_retransmitting(endpoint.address, datagram[2:4]):
            self._slow_path.stop_retransmitting(datagram, endpoint)


PATHS: Final[tuple[str, ...]] = ("events", "e")
URI_HOST: Final = 3
URI_PORT: Final = 7
URI_PATH: Final = 11
CONTENT_FORMAT: Final = 12
URI_QUERY: Final = 15
ACCEPT: Final = 17
NO_RESPONSE: Final = 258

PLAIN_OPTIONS_BYTES_MAX: Final = 256
"""Longer ones go to aiocoap; bounds the cache."""
_OPTIONS_KEPT: Final = 1_024
_PATHS: Final = frozenset(path.encode() for path in PATHS)
_LEAP: Final = 0xD0
"""From here on, an option's first byte has an extended delta (section 3.1)."""


class PlainPost(NamedTuple):
    """The options of a plain POST."""

    content_format: int | None
    query: Mapping[str, str]
    asks_time: bool


def read_plain_post(raw: bytes) -> PlainPost | None:
    """Return a plain POST's options; None for any other request, which goes to aiocoap.

    The options before a Request-Tag are cached without it, since it differs from request to request.
    """
    end, number = _before_a_leap(raw)
    if end == len(raw):
        return _read(raw)
    for option in read_options(raw[end:]):
        if _changes_the_answer(number + option.number):
            return None
    return _read(raw[:end])


def _before_a_leap(raw: bytes) -> tuple[int, int]:
    """Return end and last number of the options before the first leap of 13 or more in their numbers."""
    at = number = 0
    while at < len(raw) and raw[at] < _LEAP:
        number += raw[at] >> 4
        length = raw[at] & 15
        at += 1
        if length > 12:  # `split` has checked that the options are complete
            extended = length - 12
            length = int.from_bytes(raw[at : at + extended], "big") + (13 if extended == 1 else 269)
            at += extended
        at += length
    return at, number


@lru_cache(maxsize=_OPTIONS_KEPT)
def _read(raw: bytes) -> PlainPost | None:
    """Return the options of a POST, None where aiocoap has to read them.

    Uri-Host and Uri-Port are ignored, since they select among virtual hosts, and there is one only; Accept, since an
    answer has one format at most. Elective options are ignored (RFC 7252 section 5.4.1), such as the Request-Tag that
    libcoap adds to each POST, which matters to Block1 only (RFC 9175 section 3), and Observe, Size1, Hop-Limit, Echo.
    """
    singles: dict[int, bytes] = {}
    queries = []
    for number, value in read_options(raw):
        if number == URI_QUERY:
            queries.append(value)
        elif not _changes_the_answer(number):
            continue
        elif number in singles or not _understood(number, value):
            return None
        else:
            singles[number] = value
    if URI_PATH not in singles:
        return None
    content_format = singles.get(CONTENT_FORMAT)
    try:
        query = read_query(value.decode() for value in queries)
    except (QueryError, UnicodeDecodeError):
        return None
    media = None if content_format is None else int.from_bytes(content_format, "big")
    return PlainPost(media, query.words, query.asks_time)


def _changes_the_answer(number: int) -> bool:
    """Whether an option may not be ignored: a critical one, Content-Format, No-Response."""
    return number & 1 != 0 or number in (CONTENT_FORMAT, NO_RESPONSE)


def _understood(number: int, value: bytes) -> bool:
    if number == URI_PATH:
        return value in _PATHS
    if number in (CONTENT_FORMAT, URI_PORT, ACCEPT):
        return len(value) <= 2
    return number == URI_HOST and 0 < len(value) <= 255 and value.isascii()
