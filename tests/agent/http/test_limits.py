"""The resources that a slow or greedy client can use, without an effect on others."""

import asyncio
import json
import resource
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.http.address import BUFFER_BYTES
from agent.http.application import PIECE_BYTES
from agent.http.limits import Limits
from agent.pace import TURN_SECONDS_MAX
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.http.client import Client, Raw, post_bytes
from tests.agent.http.serving import EVENT, Served, serving
from tests.agent.http.test_access import CERTIFICATE, KEY, trusting
from tests.agent.recorder import Recorder
from tests.support.loop_turns import LoopTurns
from tests.support.waiting import until

HEAD = b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGUN_HANDSHAKE = bytes.fromhex("16 03 01 02 00 01")
"""The header of a TLS record of 512 bytes, and the first of them."""
QUICK = Limits(head_seconds_max=0.2, body_seconds_max=0.2)


@pytest.mark.guarantee(6)
@pytest.mark.parametrize(
    ("tls", "begun"),
    [(False, b""), (False, HEAD), (False, GET), (True, b""), (True, BEGUN_HANDSHAKE)],
    ids=["silent", "half-a-head", "silent-after-a-request", "tls-silent", "tls-half-a-handshake"],
)
async def test_a_head_or_a_handshake_that_does_not_end_is_given_up_without_a_word(
    tmp_path: Path, *, tls: bool, begun: bytes
) -> None:
    certificate: dict[str, Any] = {"tls_certificate": CERTIFICATE, "tls_key": KEY} if tls else {}
    async with serving(tmp_path, limits=QUICK, **certificate) as served, Raw(served.server.port) as raw:
        raw.send(begun)
        assert (await raw.receive_all()).count(b"HTTP/1.1") == (begun == GET)
        await until(lambda: not served.server.connections, "it is forgotten")
        assert (await Client(served.server.port, trusting() if tls else None).post(EVENT)).code == 200


async def test_a_body_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=QUICK) as served, Raw(served.server.port) as raw:
        raw.send(post_bytes(EVENT)[:-1])
        response = await raw.receive()
    assert (response.code, response.fields["Connection"]) == (408, "close")
    assert "body" in response.document["message"]


@pytest.mark.guarantee(6)
async def test_slow_clients_of_one_address_leave_room_for_the_others_and_all_together_have_a_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, limits=Limits(connections_max=20)) as served, AsyncExitStack() as stack:
        for address, connections in (("127.0.0.2", 10), ("127.0.0.3", 20), ("127.0.0.4", 20)):
            for _ in range(30):
                raw = await stack.enter_async_context(Raw(served.server.port, address))
                raw.send(HEAD + b"X-Slow: ")
            await until(lambda: served.server.connections == connections, "it has what is left for it")  # noqa: B023
            if connections < 20:
                assert (await served.client.post(EVENT)).code == 200
        with pytest.raises(ConnectionError):
            await served.client.post(EVENT)
    assert caplog.text.count("http=connections-refused") == 1


async def test_a_head_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    limits = Limits(head_bytes_max=4_096)
    async with serving(tmp_path, limits=limits) as served, Raw(served.server.port) as raw:
        raw.send(HEAD + b"X-Long: " + b"x" * 5_000)
        assert (await raw.receive()).code == 400


async def test_a_client_sees_the_refusal_of_a_body_that_it_is_still_sending(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, Raw(served.server.port) as raw:
        raw.send(HEAD + b"Content-Length: 900000\r\n\r\n")
        for _ in range(9):
            raw.send(b" " * 100_000)
        assert (await raw.receive()).code == 413


@pytest.mark.guarantee(6)
async def test_more_requests_than_the_limit_are_told_to_come_back_and_cost_no_body(tmp_path: Path) -> None:
    recorder, limits = Recorder(answer=None), Limits(requests_in_progress_max=2)
    async with serving(tmp_path, limits=limits, receive=recorder) as served, AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(Raw(served.server.port)) for _ in range(2)]
        for raw in raws:
            raw.send(post_bytes(EVENT))
        await recorder.received(2)
        refused = await served.client.post(EVENT)
        assert (refused.code, refused.fields["Retry-After"]) == (503, "1")
        assert (await served.client.get("/healthz")).code == 200
        for _ in raws:
            recorder.respond()
        assert [(await raw.receive()).code for raw in raws] == [200, 200]


@pytest.mark.guarantee(6)
async def test_slow_bodies_take_no_more_than_their_turn(tmp_path: Path) -> None:
    turns = LoopTurns()
    with SteppedLoop() as clock:
        recorder = Recorder(work=turns.working(clock, TURN_SECONDS_MAX / 2))
        async with serving(tmp_path, receive=recorder) as served, AsyncExitStack() as stack:
            raws = [await stack.enter_async_context(Raw(served.server.port)) for _ in range(40)]
            for raw in raws:
                raw.send(post_bytes(EVENT)[:-1])
            for raw in raws:
                raw.send(EVENT[-1:])
            with turns.counting():
                assert [(await raw.receive()).code for raw in raws] == [200] * 40
    assert turns.most <= 2


async def test_a_server_that_is_closed_waits_no_longer_than_its_bound_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, limits = Recorder(answer=None), Limits(drain_seconds_max=0.05)
    async with serving(tmp_path, receive=recorder, limits=limits) as served, Raw(served.server.port) as raw:
        raw.send(post_bytes(EVENT))
        await recorder.received(1)
        await served.server.drain()
        response = await raw.receive()
        assert (response.code, response.fields["retry-after"]) == (503, "5")
    recorder.respond()  # too late, without effect
    assert "Traceback" not in caplog.text


async def test_a_lack_of_file_descriptors_is_outlived(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.setblocking(False)
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", served.server.port))
            await until(lambda: "http=accept-failed" in caplog.text, "the lack is noticed")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (await served.client.post(EVENT)).code == 200


LIVE = b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
DEAF = 60
"""Clients that send requests and never read."""


@asynccontextmanager
async def _with_large_answers(folder: Path, limits: Limits) -> AsyncIterator[tuple[Served, int]]:
    """Serve a live view of many devices with long names; yield also its size in bytes."""
    async with serving(folder, limits=limits) as served:
        for first in range(0, 200, 20):
            names = ["\U0001f600" * 240 + str(first + number) for number in range(20)]
            pack = json.dumps([{"device": name, "id": 1} for name in names], ensure_ascii=False).encode()
            assert (await served.client.post(pack)).code == 200
        size = len((await served.client.get("/api/v1/live")).body)
        assert size > 500_000
        yield served, size


@asynccontextmanager
async def _deaf(port: int, count: int, asked: bytes) -> AsyncIterator[None]:
    """Keep connections that send requests and never read."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(client, asked)
        yield


@pytest.mark.guarantee(6)
async def test_answers_that_nobody_reads_take_bounded_memory_and_end(tmp_path: Path) -> None:
    limits = Limits(answers_bytes_max=2 << 20, head_seconds_max=3.0)
    async with _with_large_answers(tmp_path, limits) as (served, size):
        before = served.responses[503]
        tracemalloc.start()
        async with _deaf(served.server.port, DEAF, LIVE):
            await until(lambda: served.responses[503] - before > DEAF // 2, "most are refused")
            assert (await served.client.get("/healthz")).code == 200
            used, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert used < limits.answers_bytes_max + 3 * size
            await until(lambda: not served.server.connections, "those that do not read are cut off")
            assert (await served.client.get("/api/v1/live")).code == 200
            assert (await served.client.post(EVENT)).code == 200


async def test_while_answers_wait_for_their_readers_no_post_is_taken_whose_answer_would_wait_too(
    tmp_path: Path,
) -> None:
    limits = Limits(answers_bytes_max=PIECE_BYTES, head_seconds_max=3.0)
    async with _with_large_answers(tmp_path, limits) as (served, _), _deaf(served.server.port, 1, LIVE):
        await until(lambda: served.responses[200] == 12, "its answer has begun")
        refused = await served.client.post(EVENT)
        assert (refused.code, refused.fields["Retry-After"]) == (503, "5")
        await until(lambda: not served.server.connections, "it is cut off")
        assert (await served.client.post(EVENT)).code == 200


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_an_answer_that_fits_into_a_piece_is_not_waited_for_either(tmp_path: Path, more: bytes) -> None:
    asked = LIVE.removesuffix(b"\r\n") + more + b"\r\n"
    asked = LIVE * (BUFFER_BYTES // 100) + asked
    async with serving(tmp_path, limits=QUICK) as served, _deaf(served.server.port, 1, asked):
        await until(lambda: served.responses[200] > 0, "it is answered")
        await until(lambda: not served.server.connections, "it is cut off")


async def test_a_large_answer_comes_whole_to_a_client_that_reads_slowly(tmp_path: Path) -> None:
    async with _with_large_answers(tmp_path, Limits()) as (served, size), Raw(served.server.port) as raw:
        raw.send(LIVE)
        response = await raw.receive()
        assert (response.code, len(response.body)) == (200, size)
        assert len(response.document["devices"]) == 200
        assert size > 4 * PIECE_BYTES
