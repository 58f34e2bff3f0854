"""POSTs of events that are read without the HTTP library: only those that the library would read in the same way."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import h11
import pytest

from agent.delivery import Answer, Respond, Status
from agent.http.connection.whole_post import read_whole_post
from tests.agent.http.client import Raw, post_bytes
from tests.agent.http.serving import EVENT, serving
from tests.support.waiting import until

MUTATIONS = 20_000
PIECES = (b"", b" ", b"\r\n", b"\r", b"\n", b":", b"\t", b"-", b"a", b"0", b"1", b"\0", b"\x80", b",")
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
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
    rand = random.Random(seed)
    read = 0
    for _ in range(MUTATIONS):
        sent = _mutated(post_bytes(EVENT, "Accept: */*", "Authorization: Bearer a-b"), rand)
        post = read_whole_post(sent, "")
        if post is None:
            continue
        read += 1
        library = h11.Connection(h11.SERVER)
        library.receive_data(sent)
        request, *data, end = [library.next_event() for _ in range(3 if post.body else 2)]
        assert isinstance(request, h11.Request)
        assert (request.method, request.target, request.http_version) == (b"POST", b"/api/v1/events", b"1.1")
        assert list(request.headers) == list(post.head.fields)
        assert b"".join(bytes(piece.data) for piece in data if isinstance(piece, h11.Data)) == post.body
        assert isinstance(end, h11.EndOfMessage)
        assert library.trailing_data == (b"", False)
    assert read > MUTATIONS // 100


async def test_a_request_that_arrives_before_the_answer_is_answered_after_it(tmp_path: Path) -> None:
    waiting: list[Respond] = []
    async with (
        serving(tmp_path, receive=lambda _, respond: waiting.append(respond)) as served,
        Raw(served.server.port) as raw,
    ):
        raw.send(WHOLE)
        await until(lambda: len(waiting) == 1, "the first is in progress")
        raw.send(WHOLE + GET)
        await served.client.get("/healthz")  # what was sent before has been read by then
        waiting[0](Answer(Status.DURABLE, accepted=1))
        first = await raw.receive()
        await until(lambda: len(waiting) == 2, "the second is in progress")
        waiting[1](Answer(Status.DURABLE, duplicates=1))
        second, third = await raw.receive(), await raw.receive()
    assert [first.document["accepted"], second.document["duplicates"], third.code] == [1, 1, 200]


async def test_a_closing_server_answers_it_and_nothing_behind_it(tmp_path: Path) -> None:
    waiting: list[Respond] = []
    async with (
        serving(tmp_path, receive=lambda _, respond: waiting.append(respond)) as served,
        Raw(served.server.port) as idle,
        Raw(served.server.port) as raw,
    ):
        raw.send(WHOLE)
        await until(lambda: len(waiting) == 1, "it is in progress")
        raw.send(WHOLE)
        draining = asyncio.create_task(served.server.drain())
        assert await idle.receive_all() == b""
        waiting[0](Answer(Status.DURABLE, accepted=1))
        answer = await raw.receive_all()
        await draining
    assert (answer.count(b"HTTP/1.1 200"), b"connection: close" in answer.lower(), len(waiting)) == (1, True, 1)


async def test_an_outcome_after_the_client_has_left_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waiting: list[Respond] = []
    async with serving(tmp_path, receive=lambda _, respond: waiting.append(respond)) as served:
        async with Raw(served.server.port) as raw:
            raw.send(WHOLE)
            await until(lambda: len(waiting) == 1, "it is in progress")
        await until(lambda: not served.server.connections, "the connection is over")
        waiting[0](Answer(Status.DURABLE, accepted=1))
        await until(lambda: served.responses[200] == 1, "the outcome is counted")
    assert [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def _mutated(sent: bytes, rand: random.Random) -> bytes:
    """Return the bytes with up to three small changes, most of them in the head."""
    changed = bytearray(sent)
    for _ in range(rand.randrange(4)):
        at = rand.randrange(len(changed))
        piece = rand.choice(PIECES)
        changed[at : at + rand.randrange(2)] = piece
    return bytes(changed)
