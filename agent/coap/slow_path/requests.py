"""The slow path: sanitizes requests, within a budget, and passes them to aiocoap."""

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Callable

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
from agent.coap.oscore.serving import OscoreServing
from agent.coap.sanitizer import Disposition, is_protected, sanitize
from agent.coap.slow_path.bridge import AiocoapBridge
from agent.coap.tuning import Tuning
from agent.coap.udp import Endpoint

SHEDDING_ENDS_SECONDS = 60.0
"""After this time without shedding, the next occurrence is logged again."""

_SHED = Reply(UNAVAILABLE, max_age=5)
"""Without a diagnostic: hardly longer than the shortest request, whose source may be forged."""
_UNPROTECTED = Reply(UNAUTHORIZED, b"OSCORE is required here")

_log = logging.getLogger(__name__)


class SlowPath:
    """Handles all datagrams but plain POSTs; a flood of them must starve neither plain POSTs nor OSCORE."""

    def __init__(
        self,
        send: Send,
        bridge: AiocoapBridge,
        tuning: Tuning,
        body_bytes_max: int,
        counters: Counters,
        oscore: OscoreServing | None,
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
        self._oscore = oscore is not None
        self._requires_oscore = oscore is not None and oscore.required
        self._shed_last = -math.inf

    def enqueue(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Serve a message within its budget, or refuse it for now."""
        now = self._loop.time()
        line = self._protected if self._oscore and is_protected(datagram) else self._plain
        if not line.enqueue(datagram, endpoint, now):
            self._shed(datagram, endpoint, now)

    def close(self) -> None:
        self._plain.close()
        self._protected.close()

    def _serve(self, datagram: bytes, endpoint: Endpoint) -> None:
        sanitized = sanitize(datagram, oscore=self._oscore)
        match sanitized.disposition:
            case Disposition.PASS if sanitized.protected:
                key = endpoint.retransmission_key(datagram)
                self._bridge.feed_protected(sanitized.datagram, endpoint, key, self._loop.time())
            case Disposition.PASS if self._requires_oscore and datagram[1] != EMPTY:
                self._counters.unprotected += 1
                self._refuse(datagram, endpoint, _UNPROTECTED)
            case Disposition.PASS:
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

    def refuse_truncated(self, datagram: bytes, endpoint: Endpoint) -> None:
        self._counters.truncated += 1
        if _is_request(datagram):
            self._refuse(datagram, endpoint, Reply(TOO_LARGE, b"datagram too large", size1=self._body_bytes_max))

    def stop_retransmitting(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Process an ACK or Reset that is not for the fast path."""
        self._bridge.stop_retransmitting(datagram, endpoint)

    def _shed(self, datagram: bytes, endpoint: Endpoint, now: float) -> None:
        self._counters.shed += 1
        if _is_request(datagram) and self._refusals.spend(now):
            self._answer(datagram, endpoint, _SHED)
        if now - self._shed_last > SHEDDING_ENDS_SECONDS:
            _log.warning("coap=shedding reason=%r", "requests of the slow path exceed their budget")
        self._shed_last = now

    def _refuse(self, datagram: bytes, endpoint: Endpoint, reply: Reply) -> None:
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
    """Whether a message is a request with a token of valid length, whatever its options."""
    kind, code = message_type(datagram), datagram[1]
    return kind < ACKNOWLEDGEMENT and 0 < code < 0x20 and datagram[0] & 0x0F <= TOKEN_BYTES_MAX


WAITING_BYTES_MAX = 1 << 20
"""Bytes of the datagrams that wait for a budget."""
SENDER_SHARE = 8
"""One address has at most this fraction of the places to wait, so that others wait behind few of its datagrams."""


class Budget:
    """A token bucket with a capacity of one second."""

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._left = per_second
        self._counted = now

    def spend(self, now: float) -> bool:
        """Spend a token; return False where none is left."""
        self._left = min(self.per_second, self._left + (now - self._counted) * self.per_second)
        self._counted = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def seconds_to_next(self) -> float:
        """How long it takes from the last attempt until there is a token."""
        return max(0.0, 1 - self._left) / self.per_second


class WaitingLine:
    """Serves datagrams within a budget, in their order; those of about one second wait.

    So a client that sends block after block is slowed down, not interrupted, and one sender's flood delays the
    datagrams of others by its share at most.
    """

    def __init__(self, budget: Budget, serve: Callable[[bytes, Endpoint], None]) -> None:
        self._budget = budget
        self._serve = serve
        self._waiting_max = int(budget.per_second)
        self._of_sender_max = max(1, self._waiting_max // SENDER_SHARE)
        self._waiting: deque[tuple[bytes, Endpoint]] = deque()
        self._bytes = 0
        self._of_sender: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def enqueue(self, datagram: bytes, endpoint: Endpoint, now: float) -> bool:
        """Serve a datagram at once, or as soon as the budget allows; return False where too many wait."""
        if not self._waiting and self._budget.spend(now):
            self._serve(datagram, endpoint)
            return True
        if (
            len(self._waiting) >= self._waiting_max
            or self._bytes + len(datagram) > WAITING_BYTES_MAX
            or self._of_sender[endpoint.sender] >= self._of_sender_max
        ):
            return False
        self._waiting.append((datagram, endpoint))
        self._bytes += len(datagram)
        self._of_sender[endpoint.sender] += 1
        if self._timer is None:
            self._wait()
        return True

    def close(self) -> None:
        """Drop what waits, and serve nothing later."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._budget.seconds_to_next, self._serve_waiting)

    def _serve_waiting(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        try:
            while self._waiting and self._budget.spend(now):
                datagram, endpoint = self._waiting.popleft()
                self._bytes -= len(datagram)
                self._of_sender[endpoint.sender] -= 1
                if not self._of_sender[endpoint.sender]:
                    del self._of_sender[endpoint.sender]
                self._serve(datagram, endpoint)
        finally:  # also after an error, which the loop logs
            if self._waiting:
                self._wait()
