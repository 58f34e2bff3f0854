"""Separate responses: sent as CON, and retransmitted until acknowledged (RFC 7252 sections 4.2, 5.2.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from agent.coap.counters import Counters
from agent.coap.endpoint import Address, Endpoint
from agent.coap.tuning import Tuning

Send = Callable[[bytes, Endpoint], None]


@dataclass(slots=True)
class _Sent:
    datagram: bytes
    endpoint: Endpoint
    timeout_seconds: float
    timer: asyncio.TimerHandle
    retransmits: int = 0


class SeparateResponses:
    """The separate responses that are not acknowledged yet."""

    def __init__(self, send: Send, tuning: Tuning, counters: Counters, random: Random) -> None:
        self._send = send
        self._tuning = tuning
        self._counters = counters
        self._random = random
        self._sent: dict[tuple[Address, bytes], _Sent] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def send(self, datagram: bytes, endpoint: Endpoint) -> None:
        """Send a response; retransmit it with doubled timeouts until it is acknowledged, reset or given up."""
        self._counters.separate += 1
        timeout = self._tuning.ack_timeout_seconds * self._random.uniform(1, self._tuning.ack_random_factor)
        key = (endpoint.address, datagram[2:4])
        self.settle(*key)  # of 65,536 responses before, as many as there are Message IDs
        timer = asyncio.get_running_loop().call_later(timeout, self._retransmit, key)
        self._sent[key] = _Sent(datagram, endpoint, timeout, timer)
        self._send(datagram, endpoint)

    def settle(self, address: Address, message_id: bytes) -> bool:
        """Process an ACK or Reset; return whether it was for one of these responses."""
        sent = self._sent.pop((address, message_id), None)
        if sent is None:
            return False
        sent.timer.cancel()
        return True

    def close(self) -> None:
        """Cancel all retransmissions."""
        for sent in self._sent.values():
            sent.timer.cancel()
        self._sent.clear()

    def _retransmit(self, key: tuple[Address, bytes]) -> None:
        sent = self._sent[key]
        if sent.retransmits == self._tuning.retransmits_max:
            del self._sent[key]
            self._counters.given_up += 1
            return
        sent.retransmits += 1
        sent.timeout_seconds *= 2
        sent.timer = asyncio.get_running_loop().call_later(sent.timeout_seconds, self._retransmit, key)
        self._counters.retransmitted += 1
        self._send(sent.datagram, sent.endpoint)
