"""What the fast path leaves: guarded, within a budget, and then aiocoap's."""

from __future__ import annotations

import asyncio
import logging
import math
from enum import Enum

from agent.coap.answer import BAD_OPTION, NO_PROXY, TOO_LARGE, UNAUTHORIZED, Reply, tail
from agent.coap.budget import Budgets
from agent.coap.counters import Counters
from agent.coap.endpoint import Endpoint
from agent.coap.message import (
    ACKNOWLEDGEMENT,
    CONFIRMABLE,
    EMPTY,
    HEADER_BYTES,
    NON_CONFIRMABLE,
    RESET,
    TOKEN_BYTES_MAX,
    empty,
    message_type,
    response,
)
from agent.coap.sanitizer import Verdict, is_protected, judge
from agent.coap.separate import Send
from agent.coap.slow_path.bridge import AiocoapBridge

SHEDDING_ENDS_SECONDS = 60.0
"""Without shedding for so long, the next is worth a line in the log again."""

_UNPROTECTED = Reply(UNAUTHORIZED, b"OSCORE is required here")

_log = logging.getLogger(__name__)


class Protection(Enum):
    """What is asked of requests."""

    NONE = "none"
    OFFERED = "offered"
    REQUIRED = "required"


class OddPath:
    """The way of an odd datagram; a flood of them must not starve the ordinary ones, nor those under OSCORE."""

    def __init__(
        self,
        send: Send,
        bridge: AiocoapBridge,
        budgets: Budgets,
        body_bytes_max: int,
        counters: Counters,
        protection: Protection = Protection.NONE,
    ) -> None:
        self._send = send
        self._bridge = bridge
        self._budgets = budgets
        self._body_bytes_max = body_bytes_max
        self._counters = counters
        self._protection = protection
        self._shed_last = -math.inf

    def take(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Judge a message, and hand it to aiocoap where that can serve it."""
        now = asyncio.get_running_loop().time()
        oscore = self._protection is not Protection.NONE
        budget = self._budgets.protected if oscore and is_protected(datagram) else self._budgets.plain
        if not budget.take(now):
            self._shed(now)
            return
        judgement = judge(datagram, oscore=oscore)
        match judgement.verdict:
            case Verdict.PASS if judgement.protected:
                self._counters.odd += 1
                self._bridge.feed_protected(judgement.datagram, endpoint, endpoint.proof(datagram), now)
            case Verdict.PASS if self._protection is Protection.REQUIRED and datagram[1] != EMPTY:
                self._counters.unprotected += 1
                self._refuse(datagram, endpoint, _UNPROTECTED)
            case Verdict.PASS:
                self._counters.odd += 1
                self._bridge.feed(judgement.datagram, endpoint, endpoint.proof(datagram))
            case Verdict.BAD_OPTION:
                self._counters.bad_options += 1
                self._refuse(datagram, endpoint, Reply(BAD_OPTION, b"unknown critical option"))
            case Verdict.NO_PROXY:
                self._counters.bad_options += 1
                self._refuse(datagram, endpoint, Reply(NO_PROXY))
            case Verdict.RESET:
                self._counters.malformed += 1
                self._send(empty(RESET, datagram[2:4]), endpoint)
            case Verdict.IGNORE:
                self._counters.malformed += 1

    def take_truncated(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Refuse a request whose end is missing."""
        self._counters.truncated += 1
        request = message_type(datagram) < ACKNOWLEDGEMENT and 0 < datagram[1] < 0x20
        if request and datagram[0] & 0x0F <= TOKEN_BYTES_MAX:
            self._refuse(datagram, endpoint, Reply(TOO_LARGE, b"datagram too large", size1=self._body_bytes_max))

    def settle(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Take note of an ACK or Reset that is none of the fast path's."""
        self._bridge.settle(datagram, endpoint)

    def _shed(self, now: float) -> None:
        self._counters.shed += 1
        if now - self._shed_last > SHEDDING_ENDS_SECONDS:
            _log.warning("coap: odd requests exceed their budget, shedding")
        self._shed_last = now

    def _refuse(self, datagram: bytes, endpoint: Endpoint, reply: Reply) -> None:
        """Answer a request that goes nowhere."""
        head = datagram[: HEADER_BYTES + (datagram[0] & 0x0F)]
        if message_type(datagram) == CONFIRMABLE:
            kind, message_id = ACKNOWLEDGEMENT, datagram[2:4]
        else:
            kind, message_id = NON_CONFIRMABLE, self._bridge.next_message_id().to_bytes(2, "big")
        self._send(response(kind, reply.code, message_id, head, tail(reply)), endpoint)
