"""HTTP/1.1: valid requests of clients, and invalid ones."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.http.client import Raw, post_bytes
from tests.agent.http.serving import EVENT, serving

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)
HOSTILE = {
    "two lengths": post_bytes(EVENT, "Content-Length: 5"),
    "length and chunks": post_bytes(EVENT, "Transfer-Encoding: chunked"),
    "length and good chunks": post_bytes(b"", "Transfer-Encoding: chunked").replace(b"Length: 0", b"Length: 5")
    + CHUNKS,
    "an unknown coding": post_bytes(EVENT, "Transfer-Encoding: gzip, chunked"),
    "a negative length": post_bytes(EVENT).replace(b"Content-Length: ", b"Content-Length: -"),
    "an endless length": post_bytes(EVENT).replace(b"Content-Length: ", b"Content-Length: " + b"9" * 5_000),
    "a bad chunk": b"POST /api/v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a bad chunk of a request that is refused": b"POST /none HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a folded field": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n".replace(b"Host", b" Host"),
    "a space before the colon": b"GET /healthz HTTP/1.1\r\nHost : g\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "a null": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "nonsense": b"\r\n\r\nnonsense\r\n\r\n",
}


@pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE)
async def test_what_is_no_http_is_refused_and_the_connection_ends(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as served, Raw(served.server.port) as raw:
        raw.send(sent + GET)
        response = await raw.receive_all()
    assert int(response.split()[1]) in (400, 404, 505)
    assert (response.count(b"HTTP/1.1 "), b"connection: close" in response.lower()) == (1, True)
    assert unexpected(caplog) == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/events", "POST"),
        ("DELETE", "/api/v1/events", "POST"),
        ("OPTIONS", "/api/v1/events", "POST"),
        ("POST", "/metrics", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_there_is_told_which_are(
    tmp_path: Path, method: str, path: str, allowed: str
) -> None:
    async with serving(tmp_path) as served:
        response = await served.client.ask(method, path)
    assert (response.code, response.fields["Allow"]) == (405, allowed)


async def test_head_is_get_without_its_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, Raw(served.server.port) as raw:
        response = await served.client.get("/healthz", method="HEAD")
        raw.send(GET.replace(b"GET", b"HEAD") + b"HEAD /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        both = await raw.receive_all()
    assert (response.code, response.body, response.fields["Content-Length"]) == (200, b"", "14")
    assert both.count(b"\r\n\r\n") == 2
    assert both.endswith(b"\r\n\r\n")


async def test_a_client_that_asks_first_is_told_to_go_on_or_not(tmp_path: Path) -> None:
    head, _, body = post_bytes(EVENT, "Expect: 100-continue").partition(b"\r\n\r\n")
    async with serving(tmp_path, max_body_bytes=1_000) as served:
        async with Raw(served.server.port) as raw:
            raw.send(head + b"\r\n\r\n")
            assert (await raw.receive()).code == 100
            raw.send(body)
            assert (await raw.receive()).code == 200
        async with Raw(served.server.port) as raw:
            raw.send(head.replace(b"Content-Length: ", b"Content-Length: 99") + b"\r\n\r\n")
            assert (await raw.receive()).code == 413


async def test_a_body_in_chunks_is_one_body(tmp_path: Path) -> None:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in EVENT) + b"0\r\n\r\n"
    sent = post_bytes(EVENT)[: -len(EVENT)].replace(b"Content-Length: %d" % len(EVENT), b"Transfer-Encoding: chunked")
    async with serving(tmp_path) as served, Raw(served.server.port) as raw:
        for byte in sent + chunks + GET:
            raw.send(bytes((byte,)))
        assert ((await raw.receive()).code, (await raw.receive()).code) == (200, 200)


async def test_older_and_odder_clients_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for sent in (
            b"GET /healthz HTTP/1.0\r\n\r\n",
            b"GET http://gateway:8580/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            GET.replace(b"Host", b"Connection: Upgrade, close\r\nUpgrade: h2c\r\nHost"),
        ):
            async with Raw(served.server.port) as raw:
                raw.send(sent)
                assert (await raw.receive()).code == 200
                assert await raw.receive_all() == b""
        async with Raw(served.server.port) as raw:
            raw.send(b"CONNECT g:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await raw.receive()).code == 404


@pytest.mark.guarantee(6)
@given(st.randoms(use_true_random=False))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_change_nothing_for_the_next_client(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, rand: random.Random
) -> None:
    import asyncio

    asyncio.run(_endure(tmp_path_factory.mktemp("fuzz"), rand))
    assert unexpected(caplog) == []


async def _endure(folder: Path, rand: random.Random) -> None:
    async with serving(folder) as served:
        for _ in range(20):
            async with Raw(served.server.port) as raw:
                raw.send(_mutated(post_bytes(EVENT, "Expect: 100-continue") + GET, rand))
                raw.writer.write_eof()
                sent = await raw.receive_all()
            assert sent == b"" or sent.startswith(b"HTTP/1.1 ")
            assert b" 500 " not in sent
        assert (await served.client.post(b'{"device":"urn:last","id":1}')).code == 200


def unexpected(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings and errors of the log, but for those about requests that were refused."""
    messages = [record.message for record in caplog.records if record.levelno > logging.INFO]
    return [message for message in messages if not message.startswith("request=refused ")]


def _mutated(sent: bytes, rand: random.Random) -> bytes:
    mutant = bytearray(sent)
    for _ in range(rand.randint(1, 6)):
        at = rand.randrange(len(mutant) + 1)
        match rand.randrange(4):
            case 0:
                mutant[at : at + 1] = bytes((rand.randrange(256),))
            case 1:
                del mutant[at : at + rand.randint(1, 20)]
            case 2:
                mutant[at:at] = mutant[at : at + rand.randint(1, 60)]
            case _:
                mutant[at:at] = rand.randbytes(rand.randint(1, 9))
    return bytes(mutant)
