"""The TCP proxy: forwarding, stalls, resets, and a relay behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from simulators import fleet
from simulators.ledger import Acked, Ledger, Reported, Sent, read
from simulators.link.faults import stream_profile
from simulators.link.tcp import StreamLink
from simulators.payloads import PayloadFormat
from simulators.scenario import FleetPlan, LinkOutage, LinkPlan, SensorKind
from simulators.sensors.endpoint import Timing
from simulators.sensors.field import Field, Targets

SECONDS_MAX = 60


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def server(answer: bytes, bodies: list[bytes]) -> AsyncIterator[tuple[str, int]]:
    """Answers every HTTP request alike, and records its body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(one.split(b":")[1]) for one in head.split(b"\r\n") if one.lower().startswith(b"content-l")
            )
            bodies.append(await reader.readexactly(length))
            writer.write(answer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the line was reset
        finally:
            await close(writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        host, port = listening.sockets[0].getsockname()[:2]
        yield host, port


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


async def _post(address: tuple[str, int]) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody")
    try:
        async with asyncio.timeout(SECONDS_MAX):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await close(writer)


async def test_a_clear_line_carries_both_ways() -> None:
    bodies: list[bytes] = []
    async with server(OK, bodies) as target, StreamLink(target, stream_profile(LinkPlan()), 0.0, 1) as link:
        assert await _post(link.address) == OK
    assert bodies == [b"body"]


async def test_a_reset_takes_the_answer_of_a_request_that_has_arrived() -> None:
    bodies: list[bytes] = []
    async with server(OK, bodies) as target, StreamLink(target, stream_profile(LinkPlan()), 1.0, 1) as link:
        assert await _post(link.address) == b""
        assert link.resets == 1
    assert bodies == [b"body"]


async def test_a_dead_line_stalls_and_loses_nothing() -> None:
    bodies: list[bytes] = []
    plan = LinkPlan(outages=(LinkOutage(0.0, 0.5),))
    async with server(OK, bodies) as target, StreamLink(target, stream_profile(plan), 0.0, 1) as link:
        begin = asyncio.get_running_loop().time()
        assert await _post(link.address) == OK
        assert asyncio.get_running_loop().time() - begin >= 0.4


async def test_a_target_that_is_away_is_a_connection_that_ends() -> None:
    async with server(OK, []) as target:
        pass
    async with StreamLink(target, stream_profile(LinkPlan()), 0.0, 1) as link:
        assert await _post(link.address) == b""


async def test_a_relay_posts_again_what_has_no_answer(tmp_path: Path) -> None:
    bodies: list[bytes] = []
    plan = FleetPlan(SensorKind.HTTP, sensors=2, every_seconds=0.02, formats=(PayloadFormat.JSON,), pack_max=5)
    with Ledger(tmp_path / "ledger.jsonl", lambda: 0) as ledger:
        async with server(OK, bodies) as target, StreamLink(target, stream_profile(LinkPlan()), 0.4, 1) as link:
            timing = Timing().faster(500)
            field = Field(ledger, 1, Targets(http=link.address), timing, lambda moment: moment > 0.6, lambda: 1_000)
            async with asyncio.timeout(SECONDS_MAX):
                await fleet.play([plan], field)
            assert link.resets > 0
    lines = list(read(tmp_path / "ledger.jsonl"))
    reported = {one.mark for one in lines if isinstance(one, Reported)}
    assert {one.mark for one in lines if isinstance(one, Acked)} == reported
    assert sum(isinstance(one, Sent) for one in lines) > len(reported)
