"""A CoAP endpoint: one socket, one request under way at a time (NSTART = 1), RFC 7252's retransmission."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from simulators import wire

FIXED_MESSAGE_ID = 1


@dataclass(frozen=True, slots=True)
class Timing:
    """The transmission parameters of RFC 7252 section 4.8, and how long an application pauses between exchanges."""

    ack_timeout_seconds: float = 2.0
    ack_random_factor: float = 1.5
    max_retransmit: int = 4
    pause_seconds_max: float = 5.0
    exchange_lifetime_seconds: float = 247.0
    """How long a Message ID stands for one request."""

    def faster(self, factor: float) -> Timing:
        """Shorten the sensor's own times, so that an hour of field fits into minutes.

        The lifetime of an exchange stays: the gateway, too, counts it in true time.
        """
        return replace(
            self,
            ack_timeout_seconds=self.ack_timeout_seconds / factor,
            pause_seconds_max=self.pause_seconds_max / factor,
        )


class Sendable(Protocol):
    """A request, or a block of one, before it gets its Message ID and Token."""

    def datagram(self, message_id: int, token: bytes, kind: int = wire.CON) -> bytes:
        """Build the message."""


Entry = Callable[[bool], None]
"""Enters a transmission into the ledger; True where it is the same datagram again."""


class Endpoint(asyncio.DatagramProtocol):
    """A sensor's socket and its numbers."""

    def __init__(self, timing: Timing, random: Random) -> None:
        self._timing = timing
        self._random = random
        self._message_id = random.randrange(1 << 16)
        self._token = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._expected: bytes | None = None
        self._answer: asyncio.Future[wire.Message | None] | None = None

    async def open(self, target: tuple[str, int]) -> int:
        """Open the socket, and give its port."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=target)
        port: int = self._transport.get_extra_info("sockname")[1]
        return port

    def close(self) -> None:
        """Close the socket; a closed one may be closed again."""
        if self._transport is not None:
            self._transport.close()

    def forget(self) -> None:
        """Restart with nothing remembered, as sleepy nodes do: the numbers begin at the same values every time."""
        self._message_id = FIXED_MESSAGE_ID - 1
        self._token = 0

    def prepare(self, request: Sendable, kind: int = wire.CON) -> bytes:
        """Assign the next Message ID and Token to the request; from now on only its answer is heard."""
        self._message_id = (self._message_id + 1) % (1 << 16)
        self._token = (self._token + 1) % (1 << 32)
        self._expected = self._token.to_bytes(4, "big")
        return request.datagram(self._message_id, self._expected, kind)

    async def exchange(self, datagram: bytes, enter: Entry, *, again: bool = False) -> wire.Message | None:
        """Send and retransmit one datagram with exponential backoff; None where no answer comes."""
        seconds = self._timing.ack_timeout_seconds * self._random.uniform(1.0, self._timing.ack_random_factor)
        for _ in range(1 + self._timing.max_retransmit):
            enter(again)
            answer = await self.say(datagram, seconds)
            if answer is not None:
                return answer
            again = True
            seconds *= 2
        return None

    async def say(self, datagram: bytes, seconds: float) -> wire.Message | None:
        """Send a datagram once, and wait so long for its answer."""
        if self._transport is None:
            raise RuntimeError("the sensor's socket is not open")
        loop = asyncio.get_running_loop()
        self._answer = answer = loop.create_future()
        timer = loop.call_later(seconds, _give_up, answer)
        try:
            self._transport.sendto(datagram)
            heard: wire.Message | None = await answer
            return heard
        finally:
            timer.cancel()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        message = wire.parse(data)
        if message is None:
            return
        if message.type == wire.CON and self._transport is not None:
            self._transport.sendto(wire.empty_ack(message.message_id))
        # An empty ACK promises nothing: the sensor goes on until it has the answer.
        if message.code != wire.EMPTY and message.token == self._expected and self._answer and not self._answer.done():
            self._answer.set_result(message)


def _give_up(answer: asyncio.Future[wire.Message | None]) -> None:
    if not answer.done():
        answer.set_result(None)
