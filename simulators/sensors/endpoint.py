"""A CoAP endpoint: one socket, one outstanding request (NSTART = 1), retransmission as in RFC 7252."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from simulators import wire

FIXED_MESSAGE_ID = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """The transmission parameters of RFC 7252 section 4.8, and the application's pause between exchanges."""

    ack_timeout_seconds: float = 2.0
    ack_random_factor: float = 1.5
    max_retransmit: int = 4
    pause_seconds_max: float = 5.0
    exchange_lifetime_seconds: float = 247.0
    """How long a Message ID identifies one request."""

    @property
    def exchange_seconds_max(self) -> float:
        """The longest duration of one exchange: MAX_TRANSMIT_WAIT (RFC 7252 section 4.8.2)."""
        return self.ack_timeout_seconds * self.ack_random_factor * ((1 << self.max_retransmit + 1) - 1)

    def faster(self, factor: float) -> Timing:
        """Return the timing with the sensor's own intervals divided by `factor`.

        The exchange lifetime stays, since the gateway measures it in real time.
        """
        return replace(
            self,
            ack_timeout_seconds=self.ack_timeout_seconds / factor,
            pause_seconds_max=self.pause_seconds_max / factor,
        )


Entry = Callable[[bool], None]
"""Records a transmission in the ledger; True for a retransmission of the same datagram."""


class Endpoint(asyncio.DatagramProtocol):
    """A sensor's socket, Message IDs and Tokens."""

    def __init__(self, timing: Timing, random: Random) -> None:
        self._timing = timing
        self._random = random
        self._message_id = random.randrange(1 << 16)
        self._token = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._expected: bytes | None = None
        self._answer: asyncio.Future[wire.Message | None] | None = None

    async def open(self, target: tuple[str, int]) -> int:
        """Open the socket and return its port."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=target)
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        if self._transport is not None:
            self._transport.close()

    def forget(self) -> None:
        """Reset the Message ID, as a sleepy node does at each restart, and begin with a random Token.

        With the same Token as before, a late answer would be taken for that of the next event (docs/sensors.md).
        """
        self._message_id = FIXED_MESSAGE_ID - 1
        self._token = self._random.randrange(1 << 32)

    def prepare(self, request: wire.Request | wire.Block, kind: int = wire.CON) -> bytes:
        """Encode the request with the next Message ID and Token; from now on only its answer is accepted."""
        self._message_id = (self._message_id + 1) % (1 << 16)
        self._token = (self._token + 1) % (1 << 32)
        self._expected = self._token.to_bytes(4, "big")
        return request.datagram(self._message_id, self._expected, kind)

    async def exchange(self, datagram: bytes, enter: Entry, *, again: bool = False) -> wire.Message | None:
        """Send and retransmit one datagram with exponential backoff; return None where no answer arrives."""
        seconds = self._timing.ack_timeout_seconds * self._random.uniform(1.0, self._timing.ack_random_factor)
        for _ in range(1 + self._timing.max_retransmit):
            enter(again)
            answer = await self.send_once(datagram, seconds)
            if answer is not None:
                return answer
            again = True
            seconds *= 2
        return None

    async def send_once(self, datagram: bytes, seconds: float) -> wire.Message | None:
        """Send a datagram once and wait up to `seconds` for its answer."""
        if self._transport is None:
            raise RuntimeError("the sensor's socket is not open")
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        timer = loop.call_later(seconds, _give_up, answer)
        try:
            self._transport.sendto(datagram)
            received: wire.Message | None = await answer
            return received
        finally:
            timer.cancel()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        message = wire.parse(data)
        if message is None:
            return
        if message.type == wire.CON and self._transport is not None:
            self._transport.sendto(wire.empty_ack(message.message_id))
        # An empty ACK carries no answer: the sensor waits for the separate response.
        if message.code != wire.EMPTY and message.token == self._expected and self._answer and not self._answer.done():
            self._answer.set_result(message)


def _give_up(answer: asyncio.Future[wire.Message | None]) -> None:
    if not answer.done():
        answer.set_result(None)
