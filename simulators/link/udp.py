"""Emulation of a bad radio: a UDP proxy in front of one or two targets that applies faults to single datagrams.

The fate of a peer's n-th datagram in one direction depends on the seed alone, not on other peers or on the time: the
random generator is seeded by the name of a registered peer, or else by its order of arrival.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, Self

from simulators.link.faults import LinkFault, LinkProfile, Packet, apply_all

PEERS_MAX = 20_000
Target = tuple[str, int]


@dataclass(slots=True)
class _Path:
    """A peer's path to one target: the upstream endpoint and the faults."""

    target: Target
    requests: Sequence[LinkFault]
    answers: Sequence[LinkFault]
    transport: asyncio.DatagramTransport | None = None
    waiting: list[bytes] = field(default_factory=list)
    """Datagrams that arrived before the path to the target was open."""


class LinkWatcher(Protocol):
    """Sees each datagram of a peer as it is sent, and each answer as it is delivered; peers by name, in seconds."""

    def sent(self, name: str, datagram: bytes, now: float) -> None:
        """Follow a datagram of a peer, whether or not it arrives."""

    def delivered(self, name: str, datagram: bytes, now: float) -> None:
        """Follow a datagram that reaches a peer."""


class Link:
    """Forwards datagrams between peers and targets; each peer has an upstream socket of its own.

    With several targets each receives every request, subject to its own faults, and all answers are returned.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        profile: LinkProfile,
        seed: int,
        listen: Target = ("127.0.0.1", 0),
        watcher: LinkWatcher | None = None,
    ) -> None:
        self.traffic: Counter[str] = Counter()
        """The numbers of `requests` and `answers`, and of `requests lost` and `answers lost`."""
        self._targets = tuple(targets)
        self._profile = profile
        self._seed = seed
        self._listen = listen
        self._watcher = watcher
        self._names: dict[int, object] = {}
        self._peers: dict[Any, list[_Path]] = {}
        self._openings: set[asyncio.Task[None]] = set()
        self._front: asyncio.DatagramTransport | None = None
        self._begin = 0.0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._begin = loop.time()
        self._front, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(self._from_peer), local_addr=self._listen
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for opening in self._openings:
            opening.cancel()
        for paths in self._peers.values():
            for path in paths:
                if path.transport is not None:
                    path.transport.close()
        if self._front is not None:
            self._front.close()

    @property
    def address(self) -> Target:
        """The address that peers send to."""
        if self._front is None:
            raise RuntimeError("the link is not open")
        host, port = self._front.get_extra_info("sockname")[:2]
        return host, port

    def register_peer(self, port: int, name: object) -> None:
        """Register a peer's name, from which and from the seed its faults follow."""
        self._names[port] = name

    def _from_peer(self, datagram: bytes, address: Any) -> None:
        self.traffic["requests"] += 1
        paths = self._peers.get(address)
        if paths is None:
            if len(self._peers) >= PEERS_MAX:
                return
            paths = self._admit(address)
        now = self._now()
        if self._watcher is not None:
            self._watcher.sent(_name(address), datagram, now)
        for path in paths:
            packets = apply_all(path.requests, Packet(datagram, now=now))
            self.traffic["requests lost"] += not packets
            for packet in packets:
                _after(packet.seconds, self._to_target, path, packet.datagram)

    def _admit(self, address: Any) -> list[_Path]:
        name = self._names.get(address[1], len(self._peers))
        paths = self._peers[address] = []
        for number, target in enumerate(self._targets):
            of = f"{self._seed} {name} {number}" if number else f"{self._seed} {name}"
            path = _Path(
                target, self._profile.requests(Random(f"{of} requests")), self._profile.answers(Random(f"{of} answers"))
            )
            paths.append(path)
            opening = asyncio.get_running_loop().create_task(self._open(path, address), name=f"link peer {name}")
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)
        return paths

    async def _open(self, path: _Path, address: Any) -> None:
        loop = asyncio.get_running_loop()
        path.transport, _ = await loop.create_datagram_endpoint(
            lambda: _Receiver(lambda datagram, _: self._from_target(path, address, datagram)), remote_addr=path.target
        )
        for datagram in path.waiting:
            path.transport.sendto(datagram)
        path.waiting.clear()

    def _to_target(self, path: _Path, datagram: bytes) -> None:
        if path.transport is None:
            path.waiting.append(datagram)
        elif not path.transport.is_closing():
            path.transport.sendto(datagram)

    def _from_target(self, path: _Path, address: Any, datagram: bytes) -> None:
        self.traffic["answers"] += 1
        packets = apply_all(path.answers, Packet(datagram, now=self._now()))
        self.traffic["answers lost"] += not packets
        for packet in packets:
            _after(packet.seconds, self._to_peer, address, packet.datagram)

    def _to_peer(self, address: Any, datagram: bytes) -> None:
        if self._front is not None and not self._front.is_closing():
            self._front.sendto(datagram, address)
            if self._watcher is not None:
                self._watcher.delivered(_name(address), datagram, self._now())

    def _now(self) -> float:
        return asyncio.get_running_loop().time() - self._begin


class _Receiver(asyncio.DatagramProtocol):
    """Passes datagrams on; an unreachable target (ICMP port unreachable) is just another loss."""

    def __init__(self, receive: Callable[[bytes, Any], None]) -> None:
        self._receive = receive

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._receive(data, addr)


def _name(address: Any) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _after(seconds: float, act: Callable[..., None], *arguments: object) -> None:
    if seconds > 0:
        asyncio.get_running_loop().call_later(seconds, act, *arguments)
    else:
        act(*arguments)
