"""A bad radio: a UDP proxy in front of any target that plays faults on single datagrams.

What happens to a peer's n-th datagram in one direction depends on the seed alone, not on the others or on the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Protocol, Self

PEERS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Flight:
    """A datagram in the air, and how long it still takes."""

    datagram: bytes
    seconds: float = 0.0


class Fault(Protocol):
    """One thing that a radio does to datagrams of one peer in one direction."""

    def play(self, flight: Flight) -> Sequence[Flight]:
        """Give what arrives: nothing, the datagram, a late or changed one, or several."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Lose datagrams independently of one another."""

    rate: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        return () if self.random.random() < self.rate else (flight,)


@dataclass(frozen=True, slots=True)
class Delay:
    """Hold each datagram for a while; a later one with a shorter delay overtakes it."""

    seconds_min: float
    seconds_max: float
    random: Random

    def play(self, flight: Flight) -> Sequence[Flight]:
        return (Flight(flight.datagram, flight.seconds + self.random.uniform(self.seconds_min, self.seconds_max)),)


Faults = Callable[[Random], Sequence[Fault]]
"""Makes the faults of one peer in one direction, in the order in which they play, from its own randomness."""


@dataclass(frozen=True, slots=True)
class Weather:
    """The faults in both directions."""

    requests: Faults
    answers: Faults


def weather(request_loss: float, answer_loss: float, delay_seconds_min: float, delay_seconds_max: float) -> Weather:
    """Make weather with independent loss and with delay."""

    def faults(rate: float) -> Faults:
        return lambda random: (Loss(rate, random), Delay(delay_seconds_min, delay_seconds_max, random))

    return Weather(faults(request_loss), faults(answer_loss))


@dataclass(slots=True)
class Traffic:
    """What the link has seen."""

    requests: int = 0
    requests_lost: int = 0
    answers: int = 0
    answers_lost: int = 0
    peers_refused: int = 0


@dataclass(slots=True)
class _Peer:
    """One sensor's endpoint, and the endpoint that the target sees in its place."""

    requests: Sequence[Fault]
    answers: Sequence[Fault]
    transport: asyncio.DatagramTransport | None = None
    waiting: list[bytes] = field(default_factory=list)
    """Datagrams that arrived before the way to the target was open."""


class Link:
    """Carry datagrams between peers and one target; each peer keeps an upstream socket of its own."""

    def __init__(self, target: tuple[str, int], weather: Weather, seed: int, listen_host: str = "127.0.0.1") -> None:
        self.traffic = Traffic()
        self._target = target
        self._weather = weather
        self._seed = seed
        self._listen_host = listen_host
        self._peers: dict[Any, _Peer] = {}
        self._openings: set[asyncio.Task[None]] = set()
        self._front: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(self._from_peer), local_addr=(self._listen_host, 0)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opening in self._openings:
            opening.cancel()
        for peer in self._peers.values():
            if peer.transport is not None:
                peer.transport.close()
        if self._front is not None:
            self._front.close()

    @property
    def address(self) -> tuple[str, int]:
        """Where peers send to."""
        if self._front is None:
            raise RuntimeError("the link is not open")
        host, port = self._front.get_extra_info("sockname")[:2]
        return host, port

    def _from_peer(self, datagram: bytes, address: Any) -> None:
        self.traffic.requests += 1
        peer = self._peers.get(address)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                self.traffic.peers_refused += 1
                return
            peer = self._admit(address)
        flights = _play(peer.requests, datagram)
        self.traffic.requests_lost += not flights
        for flight in flights:
            _after(flight.seconds, self._to_target, peer, flight.datagram)

    def _admit(self, address: Any) -> _Peer:
        number = len(self._peers)
        peer = _Peer(
            requests=self._weather.requests(Random(f"{self._seed} {number} requests")),
            answers=self._weather.answers(Random(f"{self._seed} {number} answers")),
        )
        self._peers[address] = peer
        opening = asyncio.get_running_loop().create_task(self._open(peer, address), name=f"link peer {number}")
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        return peer

    async def _open(self, peer: _Peer, address: Any) -> None:
        loop = asyncio.get_running_loop()
        peer.transport, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(lambda datagram, _: self._from_target(peer, address, datagram)), remote_addr=self._target
        )
        for datagram in peer.waiting:
            peer.transport.sendto(datagram)
        peer.waiting.clear()

    def _to_target(self, peer: _Peer, datagram: bytes) -> None:
        if peer.transport is None:
            peer.waiting.append(datagram)
        elif not peer.transport.is_closing():
            peer.transport.sendto(datagram)

    def _from_target(self, peer: _Peer, address: Any, datagram: bytes) -> None:
        self.traffic.answers += 1
        flights = _play(peer.answers, datagram)
        self.traffic.answers_lost += not flights
        for flight in flights:
            _after(flight.seconds, self._to_peer, address, flight.datagram)

    def _to_peer(self, address: Any, datagram: bytes) -> None:
        if self._front is not None and not self._front.is_closing():
            self._front.sendto(datagram, address)


class _Receiver(asyncio.DatagramProtocol):
    """Hand datagrams on; a target that is away (ICMP port unreachable) is one more way of losing them."""

    def __init__(self, receive: Callable[[bytes, Any], None]) -> None:
        self._receive = receive

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._receive(data, addr)


def _play(faults: Sequence[Fault], datagram: bytes) -> Sequence[Flight]:
    flights: Sequence[Flight] = (Flight(datagram),)
    for fault in faults:
        flights = [after for before in flights for after in fault.play(before)]
    return flights


def _after(seconds: float, act: Callable[..., None], *arguments: object) -> None:
    if seconds > 0:
        asyncio.get_running_loop().call_later(seconds, act, *arguments)
    else:
        act(*arguments)
