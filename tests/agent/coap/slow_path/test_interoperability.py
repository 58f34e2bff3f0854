"""Clients of other projects: libcoap's, and aiocoap's own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiocoap import Context, Message, Unreliable  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]

from agent.coap.tuning import Tuning
from agent.delivery import Media
from tests.agent.coap.serving import serving
from tests.agent.recorder import Recorder

COAP_CLIENT = next(filter(None, map(shutil.which, ("coap-client-notls", "coap-client", "coap-client-gnutls"))), None)
needs_libcoap = pytest.mark.skipif(COAP_CLIENT is None, reason="libcoap's client is missing: Debian's libcoap3-bin")
SOON = Tuning(empty_ack_seconds=0.02)
LONG = '{"data":{"text":"' + "x" * 1_000 + '"}}'


@dataclass(slots=True)
class Spoken:
    """The output of libcoap's client."""

    printed: str
    received: list[str] = field(default_factory=list)
    """Its log of received messages, such as `t:ACK c:2.04`."""


async def libcoap(port: int, *arguments: str, path: str = "e", host: str = "[::1]") -> Spoken:
    """Run the client; its log shows each message."""
    process = await asyncio.create_subprocess_exec(
        str(COAP_CLIENT),
        *("-v", "7", "-B", "20", *arguments, f"coap://{host}:{port}/{path}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    printed = output.decode()
    codes = [line.partition("t:")[2].split(" i:")[0] for line in printed.splitlines() if line.startswith("v:1 t:")]
    return Spoken(printed, [" ".join(code.replace(", ", " ").split()) for code in codes])


@needs_libcoap
@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
async def test_libcoap_posts_an_event(host: str, recorder: Recorder) -> None:
    async with serving(recorder) as server:
        spoken = await libcoap(
            server.port, "-m", "post", "-t", "50", "-e", '{"id":1}', path="events?d=x&t=7", host=host
        )
        assert (server.counters.fast, server.counters.slow) == (1, 0), spoken.printed
    assert "ACK c:2.04" in spoken.received
    delivery = recorder.deliveries[0]
    assert (delivery.body, delivery.media, delivery.query) == (b'{"id":1}', Media.JSON, {"d": "x", "t": "7"})


@needs_libcoap
@pytest.mark.parametrize("size", [16, 64, 1_024])
async def test_libcoap_uploads_in_blocks(size: int, recorder: Recorder) -> None:
    async with serving(recorder) as server:
        spoken = await libcoap(server.port, "-b", str(size), "-m", "post", "-t", "50", "-e", LONG)
    assert [delivery.body for delivery in recorder.deliveries] == [LONG.encode()], spoken.printed


@needs_libcoap
async def test_libcoap_retransmits_a_lost_request(recorder: Recorder) -> None:
    async with serving(recorder) as server:
        spoken = await libcoap(server.port, "-l", "1", "-m", "post", "-t", "50", "-e", "{}")
    assert "ACK c:2.04" in spoken.received
    assert len(recorder.deliveries) == 1


@needs_libcoap
async def test_libcoap_takes_a_separate_response() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, SOON) as server:
        asking = asyncio.create_task(libcoap(server.port, "-m", "post", "-t", "50", "-e", "{}"))
        await recorder.received(1)
        asyncio.get_running_loop().call_later(0.1, recorder.respond)
        spoken = await asking
        assert (server.counters.separate, server.counters.given_up) == (1, 0)
    assert "CON c:2.04" in spoken.received


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Context]:
    context = await Context.create_client_context(transports=["udp6"])
    yield context
    await context.shutdown()


async def ask(client: Context, port: int, payload: bytes, tuning: object = None) -> Message:
    message = Message(code=Code.POST, uri=f"coap://[::1]:{port}/e", payload=payload, content_format=60)
    message.transport_tuning = tuning or message.transport_tuning
    return await client.request(message).response


async def test_aiocoap_posts_events_and_uploads_in_blocks(client: Context, recorder: Recorder) -> None:
    bodies = [b"\xa0", b"x" * 3_000]
    async with serving(recorder) as server:
        for body in bodies:
            assert (await ask(client, server.port, body)).code == Code.CHANGED
        assert (server.counters.fast, server.counters.slow) == (1, 3)
    assert [delivery.body for delivery in recorder.deliveries] == bodies


async def test_aiocoap_posts_without_confirmation_and_takes_a_separate_response(client: Context) -> None:
    recorder = Recorder()
    async with serving(recorder, SOON) as server:
        assert (await ask(client, server.port, b"\xa0", Unreliable())).code == Code.CHANGED
        recorder.answer = None
        asking = asyncio.create_task(ask(client, server.port, b"\xa1\x01\x02"))
        await recorder.received(2)
        asyncio.get_running_loop().call_later(0.1, recorder.respond)
        assert (await asking).code == Code.CHANGED
        assert (server.counters.separate, server.counters.given_up) == (1, 0)
