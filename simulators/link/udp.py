"""A bad radio: a UDP proxy in front of one target or two that plays faults on single datagrams.

What happens to a peer's n-th datagram in one direction depends on the seed alone, not on the others or on the time:
a peer that has been introduced has the randomness of its name, another that of the order in which it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Self

from simulators.link.faults import Fault, Flight, play
from simulators.link.profile import Weather

PEERS_MAX = 20_000
Target = tuple[str, int]


@dataclass(slots=True)
class Traffic:
    """What the link has seen."""

    requests: int = 0
    requests_lost: int = 0
    answers: int = 0
    answers_lost: int = 0
    peers_refused: int = 0


@dataclass(slots=True)
class _Way:
    """A peer's way to one target: the endpoint that the target sees in its place, and the faults on it."""

    target: Target
    requests: Sequence[Fault]
    answers: Sequence[Fault]
    transport: asyncio.DatagramTransport | None = None
    waiting: list[bytes] = field(default_factory=list)
    """Datagrams that arrived before the way to the target was open."""


class Link:
    """Carry datagrams between peers and targets; each peer keeps an upstream socket of its own.

    With several targets each hears every request, as far as the radio lets it, and the answers of all come back.
    """

    def __init__(self, targets: Sequence[Target], weather: Weather, seed: int, listen_host: str = "127.0.0.1") -> None:
        self.traffic = Traffic()
        self._targets = tuple(targets)
        self._weather = weather
        self._seed = seed
        self._listen_host = listen_host
        self._names: dict[int, object] = {}
        self._peers: dict[Any, list[_Way]] = {}
        self._openings: set[asyncio.Task[None]] = set()
        self._front: asyncio.DatagramTransport | None = None
        self._begin = 0.0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._begin = loop.time()
        self._front, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(self._from_peer), local_addr=(self._listen_host, 0)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opening in self._openings:
            opening.cancel()
        for ways in self._peers.values():
            for way in ways:
                if way.transport is not None:
                    way.transport.close()
        if self._front is not None:
            self._front.close()

    @property
    def address(self) -> Target:
        """Where peers send to."""
        if self._front is None:
            raise RuntimeError("the link is not open")
        host, port = self._front.get_extra_info("sockname")[:2]
        return host, port

    def introduce(self, port: int, name: object) -> None:
        """Note whose port it is, so that its fate follows from the seed and its name."""
        self._names[port] = name

    def _from_peer(self, datagram: bytes, address: Any) -> None:
        self.traffic.requests += 1
        ways = self._peers.get(address)
        if ways is None:
            if len(self._peers) >= PEERS_MAX:
                self.traffic.peers_refused += 1
                return
            ways = self._admit(address)
        now = self._now()
        for way in ways:
            flights = play(way.requests, Flight(datagram, now=now))
            self.traffic.requests_lost += not flights
            for flight in flights:
                _after(flight.seconds, self._to_target, way, flight.datagram)

    def _admit(self, address: Any) -> list[_Way]:
        name = self._names.get(address[1], len(self._peers))
        ways = self._peers[address] = []
        for number, target in enumerate(self._targets):
            of = f"{self._seed} {name} {number}" if number else f"{self._seed} {name}"
            way = _Way(
                target, self._weather.requests(Random(f"{of} requests")), self._weather.answers(Random(f"{of} answers"))
            )
            ways.append(way)
            opening = asyncio.get_running_loop().create_task(self._open(way, address), name=f"link peer {name}")
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)
        return ways

    async def _open(self, way: _Way, address: Any) -> None:
        loop = asyncio.get_running_loop()
        way.transport, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(lambda datagram, _: self._from_target(way, address, datagram)), remote_addr=way.target
        )
        for datagram in way.waiting:
            way.transport.sendto(datagram)
        way.waiting.clear()

    def _to_target(self, way: _Way, datagram: bytes) -> None:
        if way.transport is None:
            way.waiting.append(datagram)
        elif not way.transport.is_closing():
            way.transport.sendto(datagram)

    def _from_target(self, way: _Way, address: Any, datagram: bytes) -> None:
        self.traffic.answers += 1
        flights = play(way.answers, Flight(datagram, now=self._now()))
        self.traffic.answers_lost += not flights
        for flight in flights:
            _after(flight.seconds, self._to_peer, address, flight.datagram)

    def _to_peer(self, address: Any, datagram: bytes) -> None:
        if self._front is not None and not self._front.is_closing():
            self._front.sendto(datagram, address)

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._begin


class _Receiver(asyncio.DatagramProtocol):
    """Hand datagrams on; a target that is away (ICMP port unreachable) is one more way of losing them."""

    def __init__(self, receive: Callable[[bytes, Any], None]) -> None:
        self._receive = receive

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._receive(data, addr)


def _after(seconds: float, act: Callable[..., None], *arguments: object) -> None:
    if seconds > 0:
        asyncio.get_running_loop().call_later(seconds, act, *arguments)
    else:
        act(*arguments)
