"""HTTP/1.1: valid requests and invalid ones; POSTs that are read without the HTTP library are read as it would."""

import asyncio
import logging
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.delivery import Answer, Status
from agent.http.head import read_whole_post
from tests.agent.http.client import Raw, post_bytes
from tests.agent.http.serving import EVENT, Served, serving
from tests.agent.recorder import Recorder
from tests.fuzz.targets import http as fuzzed_http
from tests.support.mutations import mutated
from tests.support.waiting import until

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
    served: Served, method: str, path: str, allowed: str
) -> None:
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


async def test_older_and_odder_clients_are_served(served: Served) -> None:
    for sent in (
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET http://gateway:8580/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        GET.replace(b"Host", b"Connection: Upgrade, close\r\nUpgrade: h2c\r\nHost"),
        GET.replace(b"Host", b"Connection: close\r\nHost").replace(b"\r", b""),  # RFC 9112 section 2.2 admits it
        GET.replace(b"Host", b"X: a\r\n b\r\nConnection:\r\n close\r\nHost"),  # section 5.2: a fold is a space
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
async def test_any_bytes_change_nothing_for_the_next_client(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, rand: random.Random
) -> None:
    async with serving(tmp_path_factory.mktemp("fuzz")) as served:
        for _ in range(20):
            async with Raw(served.server.port) as raw:
                raw.send(mutated(post_bytes(EVENT, "Expect: 100-continue") + GET, rand))
                raw.writer.write_eof()
                sent = await raw.receive_all()
            assert sent == b"" or sent.startswith(b"HTTP/1.1 ")
            assert b" 500 " not in sent
        assert (await served.client.post(b'{"device":"urn:last","id":1}')).code == 200
    assert unexpected(caplog) == []


def unexpected(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings and errors of the log, but for those about requests that were refused."""
    messages = [record.message for record in caplog.records if record.levelno > logging.INFO]
    return [message for message in messages if not message.startswith("request=refused ")]


MUTATIONS = 20_000
PIECES = (b"", b" ", b"\r\n", b"\r", b"\n", b":", b"\t", b"-", b"a", b"0", b"1", b"\0", b"\x80", b",")
WHOLE = post_bytes(EVENT)
OTHERS = {
    "a part": WHOLE[:-1],
    "a request line alone": b"POST /api/v1/events HTTP/1.1\r\n",
    "no field": b"POST /api/v1/events HTTP/1.1\r\n\r\n",
    "more than one": WHOLE + b"G",
    "a query": WHOLE.replace(b"events HTTP", b"events?d=a HTTP"),
    "HTTP/1.0": WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "an unknown field": post_bytes(EVENT, "X: a"),
    "a question before the body": post_bytes(EVENT, "Expect: 100-continue"),
    "the end of the connection": post_bytes(EVENT, "Connection: close"),
    "two lengths": post_bytes(EVENT, f"Content-Length: {len(EVENT)}"),
    "two hosts": post_bytes(EVENT, "Host: localhost"),
    "chunks": post_bytes(EVENT, "Transfer-Encoding: chunked"),
    "a folded field": post_bytes(EVENT, "Accept: a\r\n b"),
    "a signed length": WHOLE.replace(b"Content-Length: ", b"Content-Length: +"),
    "a space before the colon": WHOLE.replace(b"Host:", b"Host :"),
    "a control character": post_bytes(EVENT, "Accept: a\tb"),
    "no host": WHOLE.replace(b"Host: localhost\r\n", b""),
    "a long head": post_bytes(EVENT, f"User-Agent: {'a' * 2_000}"),
}


@pytest.mark.parametrize("sent", OTHERS.values(), ids=OTHERS)
def test_other_requests_are_left_to_the_library(sent: bytes) -> None:
    assert read_whole_post(sent, "") is None


def test_what_is_read_is_what_the_library_would_read() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed={seed}")
    rand, read = random.Random(seed), 0
    for _ in range(MUTATIONS):
        sent = _slightly_mutated(post_bytes(EVENT, "Accept: */*", "Authorization: Bearer a-b"), rand)
        if read_whole_post(sent, "") is not None:
            read += 1
            fuzzed_http(sent.removeprefix(b"POST /api/v1/events HTTP/1.1\r\n"))
    assert read > MUTATIONS // 100


async def test_a_request_that_arrives_before_the_answer_is_answered_after_it(tmp_path: Path) -> None:
    recorder = Recorder(answer=None)
    async with serving(tmp_path, receive=recorder) as served, Raw(served.server.port) as raw:
        raw.send(WHOLE)
        await recorder.received(1)
        raw.send(WHOLE + GET)
        await served.client.get("/healthz")  # what was sent before has been read by then
        recorder.respond()
        first = await raw.receive()
        await recorder.received(2)
        recorder.respond(Answer(Status.DURABLE, duplicates=1))
        second, third = await raw.receive(), await raw.receive()
    assert [first.document["accepted"], second.document["duplicates"], third.code] == [1, 1, 200]


@pytest.mark.parametrize("first", [WHOLE, WHOLE * 2], ids=["apart", "together"])
async def test_a_closing_server_ends_the_idle_answers_what_is_in_progress_and_nothing_behind_it(
    tmp_path: Path, first: bytes
) -> None:
    recorder = Recorder(answer=None)
    async with (
        serving(tmp_path, receive=recorder) as served,
        Raw(served.server.port) as idle,
        Raw(served.server.port) as raw,
    ):
        raw.send(first)
        await recorder.received(1)
        raw.send((WHOLE * 2).removeprefix(first))
        draining = asyncio.create_task(served.server.drain())
        assert await idle.receive_all() == b""
        recorder.respond()
        answer = await raw.receive_all()
        await draining
    assert (answer.count(b"HTTP/1.1 200"), len(recorder.deliveries)) == (1, 1)
    assert b"connection: close" in answer.lower()


async def test_an_outcome_after_the_client_has_left_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(answer=None)
    async with serving(tmp_path, receive=recorder) as served:
        async with Raw(served.server.port) as raw:
            raw.send(WHOLE)
            await recorder.received(1)
        await until(lambda: not served.server.connections, "the connection is over")
        recorder.respond()
        await until(lambda: served.responses[200] == 1, "the outcome is counted")
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def _slightly_mutated(sent: bytes, rand: random.Random) -> bytes:
    """Return the bytes with up to three small changes, most of them in the head."""
    changed = bytearray(sent)
    for _ in range(rand.randrange(4)):
        at = rand.randrange(len(changed))
        piece = rand.choice(PIECES)
        changed[at : at + rand.randrange(2)] = piece
    return bytes(changed)
