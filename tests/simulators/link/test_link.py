from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from simulators.link.faults import NO_FAULTS, LinkProfile, Packet, link_profile
from simulators.link.udp import Link
from simulators.scenario import LinkPlan
from tests.simulators.run.minimal_gateway import minimal_gateway
from tests.support.waiting import until, until_count


class _Peer(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.append(data)


async def _open_peer(target: tuple[str, int]) -> tuple[asyncio.DatagramTransport, _Peer]:
    return await asyncio.get_running_loop().create_datagram_endpoint(_Peer, remote_addr=target)


async def test_each_peer_keeps_one_endpoint_at_the_target() -> None:
    async with (
        minimal_gateway(lambda request: [request]) as gateway,
        Link([gateway.address], NO_FAULTS, seed=1) as link,
    ):
        peers = [await _open_peer(link.address) for _ in range(3)]
        for number in range(4):
            for index, (transport, _) in enumerate(peers):
                transport.sendto(bytes((index, 1, number)))
        await until_count(lambda: sum(len(peer.heard) for _, peer in peers), 12, "answers")

        for index, (transport, peer) in enumerate(peers):
            assert peer.heard == [bytes((index, 1, number)) for number in range(4)]
            assert len({address for address, datagram in gateway.requests if datagram[0] == index}) == 1
            transport.close()
        assert len({address for address, _ in gateway.requests}) == 3
        assert (link.traffic.requests, link.traffic.answers) == (12, 12)


async def test_whoever_is_registered_has_the_fate_of_its_name_whenever_it_comes() -> None:
    async def arrived(order: Sequence[str]) -> dict[str, list[int]]:
        profile = link_profile(LinkPlan(request_loss=0.5))
        async with (
            minimal_gateway(lambda request: [request]) as gateway,
            Link([gateway.address], profile, seed=1) as link,
        ):
            for name in order:
                transport, peer = await _open_peer(link.address)
                link.register_peer(transport.get_extra_info("sockname")[1], name)
                before = link.traffic.requests_lost
                for number in range(1, 65):
                    transport.sendto(name.encode() + bytes((number,)))
                await until_count(lambda: len(peer.heard) + link.traffic.requests_lost - before, 64, "answers")  # noqa: B023
                transport.close()
            return {
                name: sorted(datagram[1] for _, datagram in gateway.requests if datagram[:1] == name.encode())
                for name in order
            }

    first, turned = await arrived("ab"), await arrived("ba")
    assert first == turned
    assert first["a"] != first["b"]


async def test_both_gateways_hear_a_sensor_and_both_are_heard() -> None:
    def echo(request: bytes) -> Sequence[bytes]:
        return [request]

    async with (
        minimal_gateway(echo) as one,
        minimal_gateway(echo) as two,
        Link([one.address, two.address], NO_FAULTS, 1) as link,
    ):
        transport, peer = await _open_peer(link.address)
        transport.sendto(b"x\x01")
        await until_count(lambda: len(peer.heard), 2, "answers")
        assert [len(gateway.requests) for gateway in (one, two)] == [1, 1]
        transport.close()


async def test_faults_compose_and_may_duplicate() -> None:
    class Twice:
        def apply(self, packet: Packet) -> Sequence[Packet]:
            return (packet, packet)

    profile = LinkProfile(lambda _: (Twice(), Twice()), lambda _: ())
    async with minimal_gateway(lambda request: [request]) as gateway, Link([gateway.address], profile, seed=1) as link:
        transport, peer = await _open_peer(link.address)
        transport.sendto(b"x\x01")
        await until_count(lambda: len(peer.heard), 4, "answers")
        assert len(gateway.requests) == 4
        transport.close()


async def test_a_target_that_is_away_is_only_a_loss() -> None:
    async with minimal_gateway() as gateway:
        address = gateway.address
    async with Link([address], NO_FAULTS, seed=1) as link:
        transport, peer = await _open_peer(link.address)
        transport.sendto(b"gone")
        await until_count(lambda: link.traffic.requests, 1, "requests")
        loop = asyncio.get_running_loop()
        back, _ = await loop.create_datagram_endpoint(_Echo, local_addr=address)
        try:
            transport.sendto(b"there")
            # The first one may reach its target late, and be answered, too.
            await until(lambda: b"there" in peer.heard, "the answer")
        finally:
            back.close()
            transport.close()


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)  # the selector's own is none by its class

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)
