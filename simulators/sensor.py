"""A CoAP sensor: it sends each event until it hears that the event is safe.

One exchange follows RFC 7252 section 4.2: ACK_TIMEOUT, doubled for each of MAX_RETRANSMIT retransmissions of the same
datagram. After it an event with an id or a time is sent anew, under a new Message ID, as applications do. An event with
neither may not be: under a new Message ID it is a new event by definition. Its sensor keeps to the same datagram.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from contract.event import Event
from simulators import coap
from simulators.ledger import Ledger
from simulators.voice import Kind, Voice, kind_of


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


class Sensor(asyncio.DatagramProtocol):
    """One device with an endpoint of its own, which has one request under way at a time (NSTART = 1)."""

    def __init__(self, voice: Voice, timing: Timing, ledger: Ledger, random: Random) -> None:
        self.voice = voice
        self._timing = timing
        self._ledger = ledger
        self._random = random
        self._message_id = random.randrange(1 << 16)
        self._token = 0
        self._transport: asyncio.DatagramTransport | None = None
        self._expected: bytes | None = None
        self._answer: asyncio.Future[coap.Message] | None = None

    async def open(self, target: tuple[str, int]) -> None:
        """Open the sensor's socket."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=target)

    def close(self) -> None:
        """Close the socket; a closed one may be closed again."""
        if self._transport is not None:
            self._transport.close()

    async def report(self, event: Event) -> None:
        """Enter an event into the ledger, and send it until it is acked, refused or given up."""
        mark = self._ledger.tell(event)
        request = self.voice.request(event)
        give_up_at = asyncio.get_running_loop().time() + self._timing.exchange_lifetime_seconds
        datagram = self._new_datagram(request)
        while True:
            answer = await self._exchange(mark, datagram)
            if answer is not None and answer.code >> 5 == 2:
                self._ledger.acked(mark)
                return
            if answer is not None and answer.code >> 5 == 4:
                self._ledger.refused(mark, answer.code_text)
                return
            await asyncio.sleep(self._pause_seconds(answer))
            if kind_of(event) is not Kind.NEITHER:
                datagram = self._new_datagram(request)
            elif asyncio.get_running_loop().time() > give_up_at:
                self._ledger.given_up(mark)
                return

    def datagram_received(self, data: bytes, addr: Any) -> None:
        message = coap.parse(data)
        if message is None:
            return
        if message.type == coap.CON and self._transport is not None:
            self._transport.sendto(coap.empty_ack(message.message_id))
        # An empty ACK promises nothing: the sensor goes on until it has the answer.
        if message.code != coap.EMPTY and message.token == self._expected and self._answer and not self._answer.done():
            self._answer.set_result(message)

    async def _exchange(self, mark: int, datagram: bytes) -> coap.Message | None:
        """Send and retransmit one datagram with exponential backoff; None where no answer comes."""
        if self._transport is None:
            raise RuntimeError("the sensor's socket is not open")
        self._answer = asyncio.get_running_loop().create_future()
        timing = self._timing
        seconds = timing.ack_timeout_seconds * self._random.uniform(1.0, timing.ack_random_factor)
        for _ in range(1 + timing.max_retransmit):
            self._ledger.sent(mark)
            self._transport.sendto(datagram)
            done, _waiting = await asyncio.wait((self._answer,), timeout=seconds)
            if done:
                return self._answer.result()
            seconds *= 2
        return None

    def _new_datagram(self, request: coap.Request) -> bytes:
        self._message_id = (self._message_id + 1) % (1 << 16)
        self._token = (self._token + 1) % (1 << 32)
        self._expected = self._token.to_bytes(4, "big")
        return request.datagram(self._message_id, self._expected)

    def _pause_seconds(self, answer: coap.Message | None) -> float:
        limit = self._timing.pause_seconds_max
        return self._random.uniform(0.0, limit) if answer is None else min(answer.max_age_seconds, limit)
