"""The slow path: sanitizes requests, within a budget, and passes them to aiocoap."""

from __future__ import annotations

import asyncio
import logging
import math
from enum import Enum

from agent.coap.answer import BAD_OPTION, NO_PROXY, TOO_LARGE, UNAUTHORIZED, UNAVAILABLE, Reply, refusal_of, tail
from agent.coap.counters import Counters
from agent.coap.exchange import Send
from agent.coap.message import (
    ACKNOWLEDGEMENT,
    CONFIRMABLE,
    EMPTY,
    HEADER_BYTES,
    NON_CONFIRMABLE,
    POST,
    PUT,
    RESET,
    TOKEN_BYTES_MAX,
    empty,
    message_type,
    response,
)
from agent.coap.sanitizer import Disposition, is_protected, sanitize
from agent.coap.slow_path.bridge import AiocoapBridge
from agent.coap.slow_path.budget import Budget, WaitingLine
from agent.coap.tuning import Tuning
from agent.coap.udp import Endpoint

SHEDDING_ENDS_SECONDS = 60.0
"""After this time without shedding, the next occurrence is logged again."""

_SHED = Reply(UNAVAILABLE, max_age=5)
"""Without a diagnostic: hardly longer than the shortest request, whose source may be forged."""
_UNPROTECTED = Reply(UNAUTHORIZED, b"OSCORE is required here")

_log = logging.getLogger(__name__)


class Protection(Enum):
    """Whether requests may or must use OSCORE."""

    NONE = "none"
    OFFERED = "offered"
    REQUIRED = "required"


class SlowPath:
    """Handles all datagrams but plain POSTs; a flood of them must starve neither plain POSTs nor OSCORE."""

    def __init__(
        self,
        send: Send,
        bridge: AiocoapBridge,
        tuning: Tuning,
        body_bytes_max: int,
        counters: Counters,
        protection: Protection = Protection.NONE,
    ) -> None:
        self._send = send
        self._bridge = bridge
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._plain = WaitingLine(Budget(tuning.slow_per_second, now), self._serve)
        self._protected = WaitingLine(Budget(tuning.protected_per_second, now), self._serve)
        self._refusals = Budget(tuning.refusals_per_second, now)
        self._body_bytes_max = body_bytes_max
        self._counters = counters
        self._protection = protection
        self._shed_last = -math.inf

    def take(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Serve a message within its budget, or refuse it for now."""
        now = self._loop.time()
        line = self._protected if self._oscore and is_protected(datagram) else self._plain
        if not line.take(datagram, endpoint, now):
            self._shed(datagram, endpoint, now)

    def close(self) -> None:
        """Drop the messages that wait."""
        self._plain.close()
        self._protected.close()

    @property
    def _oscore(self) -> bool:
        return self._protection is not Protection.NONE

    def _serve(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Sanitize a message, and pass it to aiocoap or refuse it."""
        sanitized = sanitize(datagram, oscore=self._oscore)
        match sanitized.disposition:
            case Disposition.PASS if sanitized.protected:
                self._counters.slow += 1
                key = endpoint.retransmission_key(datagram)
                self._bridge.feed_protected(sanitized.datagram, endpoint, key, self._loop.time())
            case Disposition.PASS if self._protection is Protection.REQUIRED and datagram[1] != EMPTY:
                self._counters.unprotected += 1
                self._refuse(datagram, endpoint, _UNPROTECTED)
            case Disposition.PASS:
                self._counters.slow += 1
                self._bridge.feed(sanitized.datagram, endpoint, endpoint.retransmission_key(datagram))
            case Disposition.BAD_OPTION:
                self._refuse(datagram, endpoint, Reply(BAD_OPTION, b"unknown critical option"))
            case Disposition.NO_PROXY:
                self._refuse(datagram, endpoint, Reply(NO_PROXY))
            case Disposition.RESET:
                self._counters.malformed += 1
                self._send(empty(RESET, datagram[2:4]), endpoint)
            case Disposition.IGNORE:
                self._counters.malformed += 1

    def take_truncated(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Refuse a truncated request."""
        self._counters.truncated += 1
        if _is_request(datagram):
            self._refuse(datagram, endpoint, Reply(TOO_LARGE, b"datagram too large", size1=self._body_bytes_max))

    def settle(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Process an ACK or Reset that is not for the fast path."""
        self._bridge.settle(datagram, endpoint)

    def _shed(self, datagram: bytes, endpoint: Endpoint, now: float) -> None:
        self._counters.shed += 1
        if _is_request(datagram) and self._refusals.take(now):
            self._answer(datagram, endpoint, _SHED)
        if now - self._shed_last > SHEDDING_ENDS_SECONDS:
            _log.warning("coap=shedding reason=%r", "requests of the slow path exceed their budget")
        self._shed_last = now

    def _refuse(self, datagram: bytes, endpoint: Endpoint, reply: Reply) -> None:
        """Send a refusal, and count it."""
        if datagram[1] in (POST, PUT):
            self._counters.refuse("coap", endpoint.sender, refusal_of(reply.code, reply.payload))
        self._answer(datagram, endpoint, reply)

    def _answer(self, datagram: bytes, endpoint: Endpoint, reply: Reply) -> None:
        head = datagram[: HEADER_BYTES + (datagram[0] & 0x0F)]
        if message_type(datagram) == CONFIRMABLE:
            kind, message_id = ACKNOWLEDGEMENT, datagram[2:4]
        else:
            kind, message_id = NON_CONFIRMABLE, self._bridge.next_message_id().to_bytes(2, "big")
        self._send(response(kind, reply.code, message_id, head, tail(reply)), endpoint)


def _is_request(datagram: bytes) -> bool:
    """Whether a message, of which the options are not read, is a request with a token that can be repeated."""
    kind, code = message_type(datagram), datagram[1]
    return kind < ACKNOWLEDGEMENT and 0 < code < 0x20 and datagram[0] & 0x0F <= TOKEN_BYTES_MAX
