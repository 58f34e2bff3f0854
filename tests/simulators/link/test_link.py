import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from simulators import fleet
from simulators.ledger import Acked, Ledger, Reported, Sent, read
from simulators.link.faults import LinkProfile, link_profile, stream_profile
from simulators.link.tcp import StreamLink
from simulators.link.udp import Link
from simulators.payloads import PayloadFormat
from simulators.scenario import FleetPlan, LinkOutage, LinkPlan, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets
from tests.simulators.run.minimal_gateway import minimal_gateway
from tests.support.waiting import until_count

NO_FAULTS = LinkProfile(lambda _: (), lambda _: ())


class _Peer(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.append(data)


async def open_peer(target: tuple[str, int]) -> tuple[asyncio.DatagramTransport, _Peer]:
    return await asyncio.get_running_loop().create_datagram_endpoint(_Peer, remote_addr=target)


async def test_each_peer_keeps_one_endpoint_at_the_target() -> None:
    async with (
        minimal_gateway(lambda request: [request]) as gateway,
        Link([gateway.address], NO_FAULTS, seed=1) as link,
    ):
        peers = [await open_peer(link.address) for _ in range(3)]
        for number in range(4):
            for index, (transport, _) in enumerate(peers):
                transport.sendto(bytes((index, 1, number)))
        await until_count(lambda: sum(len(peer.heard) for _, peer in peers), 12, "answers")

        for index, (transport, peer) in enumerate(peers):
            assert peer.heard == [bytes((index, 1, number)) for number in range(4)]
            assert len({address for address, datagram in gateway.requests if datagram[0] == index}) == 1
            transport.close()
        assert len({address for address, _ in gateway.requests}) == 3
        assert (link.traffic["requests"], link.traffic["answers"]) == (12, 12)


async def test_whoever_is_registered_has_the_fate_of_its_name_whenever_it_comes() -> None:
    async def arrived(order: Sequence[str]) -> dict[str, list[int]]:
        profile = link_profile(LinkPlan(request_loss=0.5))
        async with (
            minimal_gateway(lambda request: [request]) as gateway,
            Link([gateway.address], profile, seed=1) as link,
        ):
            for name in order:
                transport, peer = await open_peer(link.address)
                link.register_peer(transport.get_extra_info("sockname")[1], name)
                before = link.traffic["requests lost"]
                for number in range(1, 65):
                    transport.sendto(name.encode() + bytes((number,)))
                await until_count(lambda: len(peer.heard) + link.traffic["requests lost"] - before, 64, "answers")  # noqa: B023
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
        transport, peer = await open_peer(link.address)
        transport.sendto(b"x\x01")
        await until_count(lambda: len(peer.heard), 2, "answers")
        assert [len(gateway.requests) for gateway in (one, two)] == [1, 1]
        transport.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def server(bodies: list[bytes]) -> AsyncIterator[tuple[str, int]]:
    """Accept every HTTP request, and record its body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the line was reset
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = re.findall(rb"(?i)\r\ncontent-length: (\d+)", head)
            bodies.append(await reader.readexactly(int(length)))
            writer.write(OK)
            await writer.drain()
        await close(writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        host, port = listening.sockets[0].getsockname()[:2]
        yield host, port


async def _post(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await close(writer)


async def test_a_reset_takes_the_answer_of_a_request_that_has_arrived() -> None:
    bodies: list[bytes] = []
    async with server(bodies) as target, StreamLink(target, stream_profile(LinkPlan()), 1.0, 1) as link:
        assert await _post(link.address) == b""
        assert link.resets == 1
    assert bodies == [b"body"]


async def test_a_dead_line_stalls_and_loses_nothing() -> None:
    bodies: list[bytes] = []
    plan = LinkPlan(outages=(LinkOutage(0.0, 0.5),))
    async with server(bodies) as target, StreamLink(target, stream_profile(plan), 0.0, 1) as link:
        begin = asyncio.get_running_loop().time()
        assert await _post(link.address) == OK
        assert asyncio.get_running_loop().time() - begin >= 0.4


async def test_a_relay_posts_again_what_has_no_answer(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    plan = FleetPlan(SensorKind.HTTP, sensors=2, every_seconds=0.02, formats=(PayloadFormat.JSON,), pack_max=5)
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        async with server(bodies) as target, StreamLink(target, stream_profile(LinkPlan()), 0.4, 1) as link:
            timing = Timing().faster(500)
            field = Field(ledger, 1, Targets(http=link.address), timing, lambda moment: moment > 0.6, lambda: 1_000)
            await fleet.play([plan], field)
            assert link.resets > 0
    lines = list(read(tmp_path / "ledger.jsonl"))
    reported = {one.mark for one in lines if isinstance(one, Reported)}
    assert {one.mark for one in lines if isinstance(one, Acked)} == reported
    assert sum(isinstance(one, Sent) for one in lines) > len(reported)
