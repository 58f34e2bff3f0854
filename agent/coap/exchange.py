"""The exchanges of the fast path, from request to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent.coap.answer import ACCEPTED, TOO_MANY, Reply, accepted_at, reply_to, tail
from agent.coap.counters import Counters
from agent.coap.endpoint import Endpoint
from agent.coap.message import ACKNOWLEDGEMENT, CONFIRMABLE, NON_CONFIRMABLE, empty, message_type, response
from agent.coap.response_cache import ResponseCache
from agent.coap.separate import Send, SeparateResponses
from agent.coap.tuning import Tuning
from agent.delivery import Answer

Now = Callable[[], int | None]
"""Returns the time in milliseconds since 1970 UTC, None where the gateway's clock is untrusted."""


class Exchange:
    """One request, from its reception to its answer."""

    __slots__ = ("_exchanges", "acknowledged", "asks_time", "endpoint", "head", "received", "retransmission_key")

    def __init__(
        self, exchanges: Exchanges, endpoint: Endpoint, head: bytes, retransmission_key: bytes, received: float
    ) -> None:
        self._exchanges = exchanges
        self.endpoint = endpoint
        self.head = head
        """Header and token of the request."""
        self.retransmission_key = retransmission_key
        self.received = received
        self.asks_time = False
        self.acknowledged = False
        """Whether an empty ACK was sent."""

    @property
    def confirmable(self) -> bool:
        """Whether the sensor waits for an ACK."""
        return message_type(self.head) == CONFIRMABLE

    def respond(self, answer: Answer) -> None:
        """Answer the sensor."""
        self._exchanges.finish(self, answer)


class Exchanges:
    """All exchanges, by the retransmission key of their request.

    A retransmission of a request in progress is not answered, since its answer follows; later it gets the same answer.
    A temporary refusal is not cached: the sensor's retransmission is a new attempt.
    """

    def __init__(
        self,
        send: Send,
        separate: SeparateResponses,
        next_message_id: Callable[[], int],
        body_bytes_max: int,
        tuning: Tuning,
        counters: Counters,
        now: Now,
    ) -> None:
        self._send = send
        self._separate = separate
        self._now = now
        self._next_message_id = next_message_id
        self._body_bytes_max = body_bytes_max
        self._tuning = tuning
        self._counters = counters
        self._responses = ResponseCache(tuning.exchange_lifetime_seconds, tuning.answers_max)
        self._in_progress: dict[bytes, Exchange] = {}
        self._acknowledged: dict[bytes, Exchange] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._in_progress) + len(self._acknowledged)

    def answer_retransmission(self, retransmission_key: bytes, head: bytes, endpoint: Endpoint, now: float) -> bool:
        """Answer a retransmission; return False where the request is new."""
        answer = self._responses.get(retransmission_key, now)
        if answer is not None:
            self._send(answer, endpoint)
        elif retransmission_key in self._acknowledged:
            if message_type(head) == CONFIRMABLE:
                self._send(empty(ACKNOWLEDGEMENT, head[2:4]), endpoint)
        elif retransmission_key not in self._in_progress:
            return False
        self._counters.duplicates += 1
        return True

    def open(self, endpoint: Endpoint, head: bytes, retransmission_key: bytes, now: float) -> Exchange | None:
        """Begin an exchange; refuse the request and return None where too many are in progress."""
        exchange = Exchange(self, endpoint, head, retransmission_key, now)
        if len(self._in_progress) + len(self._acknowledged) + len(self._separate) >= self._tuning.exchanges_max:
            self._counters.refused += 1
            self._send(self._response(exchange, TOO_MANY), endpoint)
            return None
        self._in_progress[retransmission_key] = exchange
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tuning.empty_ack_seconds, self._acknowledge)
        return exchange

    def finish(self, exchange: Exchange, answer: Answer) -> None:
        """Answer an exchange: in its ACK, or as a separate response where an empty ACK was sent."""
        self._in_progress.pop(exchange.retransmission_key, None)
        self._acknowledged.pop(exchange.retransmission_key, None)
        reply = reply_to(answer, self._body_bytes_max)
        self.reply(exchange, accepted_at(self._now()) if exchange.asks_time and reply is ACCEPTED else reply)
        if self._idle is not None and len(self) == 0:
            self._idle.set()

    def reply(self, exchange: Exchange, reply: Reply) -> None:
        """Send the reply, and cache it where it is lasting.

        The cached datagram is the ACK with the answer, also after an empty ACK: a sensor that retransmits its request
        has not received the empty ACK, and so gets the outcome at once.
        """
        datagram = self._response(exchange, reply)
        if reply.lasting:
            self._responses.put(exchange.retransmission_key, exchange.received, datagram)
        if exchange.acknowledged:
            message_id = self._next_message_id().to_bytes(2, "big")
            separate = response(CONFIRMABLE, reply.code, message_id, exchange.head, tail(reply))
            self._separate.send(separate, exchange.endpoint)
        else:
            self._send(datagram, exchange.endpoint)

    def forget_answers(self) -> None:
        """Clear the cache, since the store has lost events that were acked: retransmissions are decided again.

        All answers are removed, since it is unknown which answer was for which event. The store recognises the
        duplicates of the events that it still has.
        """
        self._responses.clear()

    def settle(self, endpoint: Endpoint, message_id: bytes) -> bool:
        """Process an ACK or Reset; return whether it was for a separate response."""
        return self._separate.settle(endpoint.address, message_id)

    async def finished(self) -> None:
        """Wait until nothing is in progress."""
        if len(self):
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        """Cancel all timers."""
        self._separate.close()
        if self._timer is not None:
            self._timer.cancel()

    def _response(self, exchange: Exchange, reply: Reply) -> bytes:
        head = exchange.head
        if exchange.confirmable:
            return response(ACKNOWLEDGEMENT, reply.code, head[2:4], head, tail(reply))
        message_id = self._next_message_id().to_bytes(2, "big")
        return response(NON_CONFIRMABLE, reply.code, message_id, head, tail(reply))

    def _acknowledge(self) -> None:
        """Send an empty ACK for exchanges in progress for too long, and set the timer for the next one."""
        loop = asyncio.get_running_loop()
        due = loop.time() - self._tuning.empty_ack_seconds
        late = []
        self._timer = None
        for exchange in self._in_progress.values():  # the oldest first
            if exchange.received > due:
                self._timer = loop.call_at(exchange.received + self._tuning.empty_ack_seconds, self._acknowledge)
                break
            late.append(exchange)
        for exchange in late:
            self._acknowledged[exchange.retransmission_key] = self._in_progress.pop(exchange.retransmission_key)
            if exchange.confirmable:
                exchange.acknowledged = True
                self._send(empty(ACKNOWLEDGEMENT, exchange.head[2:4]), exchange.endpoint)
