"""The exchanges of the fast path, from request to answer, which may be separate, or repeated for a retransmission."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from struct import Struct
from typing import Final

from agent.coap.answer import ACCEPTED, TOO_MANY, Reply, accepted_at, reply_to, tail
from agent.coap.counters import Counters
from agent.coap.message import ACKNOWLEDGEMENT, CONFIRMABLE, NON_CONFIRMABLE, empty, message_type, response
from agent.coap.tuning import Tuning
from agent.coap.udp import Address, Endpoint
from agent.delivery import Answer

_MOMENT: Final = Struct("d")


class ResponseCache:
    """Responses by the retransmission keys of requests, oldest first; evicted after a lifetime, or beyond a number."""

    def __init__(self, lifetime_seconds: float, answers_max: int) -> None:
        self._lifetime_seconds = lifetime_seconds
        self._answers_max = answers_max
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        """Each in one value with the time of its request: two values would take 100 bytes more."""
        self._oldest_received = 0.0
        """The time of the oldest answer's request, when outlived answers were last removed."""

    def put(self, key: bytes, received: float, answer: bytes) -> None:
        """Store the answer to a request that was received at this time, in seconds of the loop's clock."""
        answers = self._answers
        answers[key] = _MOMENT.pack(received) + answer
        if len(answers) > self._answers_max:
            answers.popitem(last=False)
        if received - self._oldest_received >= self._lifetime_seconds:
            self._forget(received)

    def get(self, key: bytes, now: float) -> bytes | None:
        """Return the answer, None where there is none; after its lifetime an equal datagram is a new request."""
        found = self._answers.get(key)
        if found is None:
            return None
        if not self._outlived(found, now):
            return found[_MOMENT.size :]
        del self._answers[key]
        return None

    def clear(self) -> None:
        """Remove all answers but empty ones, which represent requests in progress."""
        for key in [key for key, kept in self._answers.items() if len(kept) > _MOMENT.size]:
            del self._answers[key]

    def _forget(self, now: float) -> None:
        answers = self._answers
        while answers and self._outlived(oldest := next(iter(answers.values())), now):
            answers.popitem(last=False)
        self._oldest_received = _received(oldest) if answers else now

    def _outlived(self, kept: bytes, now: float) -> bool:
        return now - _received(kept) >= self._lifetime_seconds


def _received(kept: bytes) -> float:
    received: float = _MOMENT.unpack_from(kept)[0]
    return received


Send = Callable[[bytes, Endpoint], None]


@dataclass(slots=True)
class _Sent:
    datagram: bytes
    endpoint: Endpoint
    timeout_seconds: float
    timer: asyncio.TimerHandle
    retransmits: int = 0


class SeparateResponses:
    """The separate responses that are not acknowledged yet.

    Sent as CON, and retransmitted until acknowledged (RFC 7252 sections 4.2, 5.2.2).
    """

    def __init__(self, send: Send, tuning: Tuning, random: Random) -> None:
        self._send = send
        self._tuning = tuning
        self._random = random
        self._sent: dict[tuple[Address, bytes], _Sent] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Send a response; retransmit it with doubled timeouts until it is acknowledged, reset or given up."""
        timeout = self._tuning.ack_timeout_seconds * self._random.uniform(1, self._tuning.ack_random_factor)
        key = (endpoint.address, datagram[2:4])
        self.stop_retransmitting(*key)  # of 65,536 responses before, as many as there are Message IDs
        timer = asyncio.get_running_loop().call_later(timeout, self._retransmit, key)
        self._sent[key] = _Sent(datagram, endpoint, timeout, timer)
        self._send(datagram, endpoint)

    def stop_retransmitting(self, address: Address, message_id: bytes) -> bool:
        """Process an ACK or Reset; return whether it was for one of these responses."""
        sent = self._sent.pop((address, message_id), None)
        if sent is None:
            return False
        sent.timer.cancel()
        return True

    def close(self) -> None:
        for sent in self._sent.values():
            sent.timer.cancel()
        self._sent.clear()

    def _retransmit(self, key: tuple[Address, bytes]) -> None:
        sent = self._sent[key]
        if sent.retransmits == self._tuning.retransmits_max:
            del self._sent[key]
            return
        sent.retransmits += 1
        sent.timeout_seconds *= 2
        sent.timer = asyncio.get_running_loop().call_later(sent.timeout_seconds, self._retransmit, key)
        self._send(sent.datagram, sent.endpoint)


Now = Callable[[], int | None]
"""Returns the time in milliseconds since 1970 UTC, None where the gateway's clock is untrusted."""


class Exchange:
    """One request, from its reception to its answer."""

    __slots__ = (
        "acknowledged",
        "asks_time",
        "confirmable",
        "endpoint",
        "head",
        "received",
        "retransmission_key",
    )

    def __init__(self, endpoint: Endpoint, head: bytes, retransmission_key: bytes, received: float) -> None:
        self.endpoint = endpoint
        self.head = head
        """Header and token of the request."""
        self.confirmable = message_type(head) == CONFIRMABLE
        """Whether the sensor waits for an ACK."""
        self.retransmission_key = retransmission_key
        self.received = received
        self.asks_time = False
        self.acknowledged = False
        """Whether an empty ACK was sent."""


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
        self.separate = separate
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
        exchange = Exchange(endpoint, head, retransmission_key, now)
        if len(self._in_progress) + len(self._acknowledged) + len(self.separate) >= self._tuning.exchanges_max:
            self._counters.busy += 1
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
        self._send_reply(exchange, accepted_at(self._now()) if exchange.asks_time and reply is ACCEPTED else reply)
        if self._idle is not None and len(self) == 0:
            self._idle.set()

    def _send_reply(self, exchange: Exchange, reply: Reply) -> None:
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
            self.separate.send(separate, exchange.endpoint)
        else:
            self._send(datagram, exchange.endpoint)

    def forget_answers(self) -> None:
        """Clear the cache, since the store has lost events that were acked: retransmissions are decided again.

        All answers are removed, since it is unknown which answer was for which event. The store recognises the
        duplicates of the events that it still has.
        """
        self._responses.clear()

    async def finished(self) -> None:
        if len(self):
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()

    def close(self) -> None:
        self.separate.close()
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
