"""The answer to a sensor for each outcome, and the time, equal in the fast path and in aiocoap."""

from pathlib import Path

import cbor2
import pytest
from aiocoap import Message  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from agent.coap.answer import DIAGNOSTIC_BYTES_MAX, diagnostic
from agent.coap.exchange import ResponseCache
from agent.coap.message import Option, join, write_options
from agent.coap.oscore.serving import OscoreServing
from agent.coap.server import CoapServer
from agent.coap.tuning import Tuning
from agent.config.settings import CoapSettings
from agent.delivery import Answer, Media, Status
from agent.store.fingerprints.transient import EXCHANGE_LIFETIME_MS
from tests.agent.coap.oscore.protected import CREDENTIAL, ProtectedSensor, sensor_folder
from tests.agent.coap.sensor import ACK, BODY, CHANGED, CON, NON, RST, URI_QUERY, Response, Sensor, datagram, post
from tests.agent.coap.serving import BODY_BYTES_MAX, both_paths, serving
from tests.agent.coap.stepped_loop import SteppedLoop
from tests.agent.recorder import DURABLE, Recorder
from tests.fuzz.targets import message as fuzzed_message

TABLE = [
    (DURABLE, 0x44, b""),
    (Answer(Status.UNDECODABLE, reason="no"), 0x80, b"\xffno"),
    (Answer(Status.UNKNOWN_FORMAT, reason="what"), 0x8F, b"\xffwhat"),
    (Answer(Status.TOO_LARGE), 0x8D, b"\xd2\x2f\x10\x00"),  # Size1 (60) = 4096
    (Answer(Status.UNAUTHENTICATED), 0x81, b""),
    (Answer(Status.FORBIDDEN), 0x83, b""),
    (Answer(Status.NOT_FOUND), 0x84, b""),
    (Answer(Status.UNAVAILABLE, reason="full", retry_seconds=7), 0xA3, b"\xd1\x01\x07\xfffull"),  # Max-Age (14) = 7
    (Answer(Status.TOO_MANY, reason="rest", retry_seconds=7), 0x9D, b"\xd1\x01\x07\xffrest"),
    (Answer(Status.UNAVAILABLE), 0xA3, b"\xd1\x01\x01"),
]


def test_the_table_has_every_status() -> None:
    assert {answer.status for answer, _, _ in TABLE} == set(Status)


@pytest.mark.guarantee(3)
@both_paths
@pytest.mark.parametrize(("answer", "code", "rest"), TABLE, ids=lambda value: str(value)[:40])
async def test_each_outcome_has_its_code_and_options(fast: bool, answer: Answer, code: int, rest: bytes) -> None:
    async with serving(Recorder(answer), fast=fast) as server, Sensor(server.port) as sensor:
        assert await sensor.ask(post(mid=7, token=b"abc")) == Response(ACK, code, 7, b"abc", rest)


@both_paths
async def test_a_non_confirmable_request_gets_a_non_confirmable_response(fast: bool) -> None:
    async with serving(Recorder(), fast=fast) as server, Sensor(server.port) as sensor:
        first = await sensor.ask(post(mid=7, token=b"abc", kind=NON))
        second = await sensor.ask(post(mid=8, token=b"abd", kind=NON))
    assert (first.kind, first.code, first.token, first.rest) == (NON, 0x44, b"abc", b"")
    assert (second.token, second.mid) == (b"abd", (first.mid + 1) & 0xFFFF)


@both_paths
async def test_the_delivery_says_what_the_request_said(fast: bool, recorder: Recorder) -> None:
    words = tuple(
        (URI_QUERY, word) for word in (b"d=urn:dev:mac:0011223344556677", b"id=7", b"boot=3", b"t=1", b"type=x")
    )
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(path="events", options=words, content_format=112))
    delivery = recorder.deliveries[0]
    assert (delivery.body, delivery.media, delivery.via) == (BODY, Media.SENML_CBOR, "coap")
    assert (delivery.sender, delivery.authenticated) == ("coap://[::1]", None)
    assert delivery.query == {"d": "urn:dev:mac:0011223344556677", "id": "7", "boot": "3", "t": "1", "type": "x"}
    assert delivery.retransmission_key is not None
    assert len(delivery.retransmission_key) == 16


@both_paths
@pytest.mark.parametrize("query", [(b"id",), (b"id=1", b"id=2")], ids=["without a value", "twice"])
async def test_a_query_that_is_not_made_of_words_is_refused(fast: bool, query: tuple[bytes, ...]) -> None:
    recorder = Recorder()
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        response = await sensor.ask(post(options=tuple((URI_QUERY, word) for word in query)))
    assert (response.code, response.rest[:1]) == (0x80, b"\xff")
    assert recorder.deliveries == []


@both_paths
@pytest.mark.parametrize(
    ("content_format", "body", "media"),
    [
        (None, b'{"data":{}}', Media.JSON),
        (None, b" [1]", Media.JSON),
        (None, BODY, Media.CBOR),
        (None, b"", Media.CBOR),
        (50, BODY, Media.JSON),
        (110, b"[]", Media.SENML_JSON),
        (0, b"text", None),
        (65_535, b"text", None),
    ],
)
async def test_the_format_is_named_or_else_told_by_the_first_byte(
    fast: bool, content_format: int | None, body: bytes, media: Media | None, recorder: Recorder
) -> None:
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(content_format=content_format, payload=body))
    assert recorder.deliveries[0].media is media


@both_paths
async def test_a_body_over_the_limit_is_refused_with_size1(fast: bool, recorder: Recorder) -> None:
    async with serving(recorder, fast=fast) as server, Sensor(server.port) as sensor:
        fits = await sensor.ask(post(mid=1, payload=b"x" * BODY_BYTES_MAX))
        exceeds = await sensor.ask(post(mid=2, payload=b"x" * (BODY_BYTES_MAX + 1)))
        truncated = await sensor.ask(post(mid=3, payload=b"x" * (BODY_BYTES_MAX + 4_096)))
        truncated_non = await sensor.ask(post(mid=4, kind=NON, payload=b"x" * (BODY_BYTES_MAX + 4_096)))
        assert server.counters.truncated == 2
    assert fits.code == 0x44
    assert (exceeds.code, exceeds.mid, exceeds.rest[:4]) == (0x8D, 2, b"\xd2\x2f\x10\x00")
    assert (truncated.code, truncated.mid, truncated.rest[:4]) == (0x8D, 3, b"\xd2\x2f\x10\x00")
    assert (truncated_non.kind, truncated_non.code) == (NON, 0x8D)
    assert len(recorder.deliveries) == 1


async def test_a_truncated_datagram_that_is_no_request_is_not_answered() -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        sensor.send(datagram(RST, 0, 9, b"", (), b"x" * 9_000))
        sensor.send(datagram(CON, 0x45, 9, b"", (), b"x" * 9_000))
        await sensor.expect_silence()


def test_a_diagnostic_is_cut_between_two_characters() -> None:
    cut = diagnostic("é" * 40)
    assert len(cut) == DIAGNOSTIC_BYTES_MAX
    assert diagnostic("a" + "é" * 40).decode() == "a" + "é" * 31


NUMBERS = st.integers(0, 65_000).filter(lambda number: number not in (3, 8, 11, 15, 20, 35, 39))  # those are text
OPTIONS = st.lists(st.builds(Option, NUMBERS, st.binary(max_size=600)), max_size=6).map(
    lambda options: write_options(tuple(sorted(options, key=lambda option: option.number)))
)
HEADS = st.binary(min_size=3, max_size=11).map(lambda rest: bytes((0x40 | len(rest) - 3,)) + rest)


@given(
    st.builds(join, HEADS, OPTIONS, st.binary(max_size=50)) | st.builds(bytes.__add__, HEADS, st.binary(max_size=40))
)
def test_any_bytes_are_refused_or_read_as_aiocoap_reads_them(datagram: bytes) -> None:
    fuzzed_message(datagram)


def test_what_has_outlived_its_lifetime_is_let_go() -> None:
    cache = ResponseCache(lifetime_seconds=10, answers_max=5)
    cache.put(b"a", 0.0, b"answer")
    cache.put(b"b", 1.0, b"answer")
    cache.put(b"c", 10.5, b"answer")
    assert len(cache._answers) == 2


def test_the_oldest_answer_makes_room() -> None:
    cache = ResponseCache(lifetime_seconds=10, answers_max=2)
    for retransmission_key in (b"a", b"b", b"c"):
        cache.put(retransmission_key, 0.0, retransmission_key)
    assert [cache.get(retransmission_key, 0.0) for retransmission_key in (b"a", b"b", b"c")] == [None, b"b", b"c"]


MAX_LATENCY_SECONDS = 100
"""Not a setting: the RFC's maximum time of a datagram in the network."""


@pytest.mark.guarantee(2)
def test_the_defaults_of_coap_and_of_the_store_are_the_rfcs() -> None:
    tuning = Tuning()
    assert (tuning.ack_timeout_seconds, tuning.ack_random_factor, tuning.retransmits_max) == (2, 1.5, 4)
    span = tuning.ack_timeout_seconds * (2**tuning.retransmits_max - 1) * tuning.ack_random_factor
    processing = tuning.ack_timeout_seconds
    assert tuning.exchange_lifetime_seconds == span + 2 * MAX_LATENCY_SECONDS + processing == 247
    assert EXCHANGE_LIFETIME_MS == 247_000


@pytest.mark.guarantee(2)
async def test_by_default_a_retransmission_is_answered_from_memory_for_247_seconds_and_no_longer() -> None:
    recorder = Recorder()
    with SteppedLoop() as clock:
        async with CoapServer(CoapSettings(bind="[::1]:0"), recorder) as server, Sensor(server.port) as sensor:
            for seconds, deliveries in ((0, 1), (240, 1), (6, 1), (1.5, 2)):
                await clock.advance(seconds)
                assert (await sensor.ask(post(mid=5))).code == CHANGED
                assert len(recorder.deliveries) == deliveries


NOW = 1_763_706_000_123
ASKING = ((URI_QUERY, b"now"), (URI_QUERY, b"d=urn:x:1"))
ANSWERED = write_options((Option(12, b"\x3c"),)) + b"\xff" + cbor2.dumps(NOW)


@pytest.mark.parametrize("fast", [True, False])
async def test_whoever_asks_is_told_the_time_and_nobody_else(fast: bool, recorder: Recorder) -> None:
    async with serving(recorder, fast=fast, now=lambda: NOW) as server, Sensor(server.port) as sensor:
        asked = await sensor.ask(post(1, options=ASKING))
        assert (asked.code, asked.rest) == (CHANGED, ANSWERED)
        assert (await sensor.ask(post(2, kind=NON, options=ASKING))).rest == ANSWERED
        assert (await sensor.ask(post(3))).rest == b""
        assert server.counters.fast == (3 if fast else 0)
    assert recorder.deliveries[0].query == {"d": "urn:x:1"}


async def test_a_retransmission_is_told_the_time_as_it_is_then(recorder: Recorder) -> None:
    times = iter((NOW - 90_000, NOW))
    async with serving(recorder, now=lambda: next(times)) as server, Sensor(server.port) as sensor:
        await sensor.ask(post(options=ASKING))
        assert (await sensor.ask(post(options=ASKING))).rest == ANSWERED
    assert recorder.deliveries[0].retransmission_key == recorder.deliveries[1].retransmission_key


@pytest.mark.parametrize(
    ("answer", "now", "code", "rest"),
    [(Answer(Status.UNDECODABLE, reason="no"), NOW, 0x80, b"\xffno"), (DURABLE, None, CHANGED, b"")],
    ids=["a refusal", "not sure of the time"],
)
async def test_no_time_is_told(answer: Answer, now: int | None, code: int, rest: bytes) -> None:
    async with serving(Recorder(answer), now=lambda: now) as server, Sensor(server.port) as sensor:
        response = await sensor.ask(post(options=ASKING))
    assert (response.code, response.rest) == (code, rest)


async def test_the_time_is_told_under_oscore_too(tmp_path: Path) -> None:
    oscore = OscoreServing((CREDENTIAL,), tmp_path / "numbers")
    client = ProtectedSensor(sensor_folder(tmp_path / "sensor"))
    async with serving(Recorder(), oscore=oscore, now=lambda: NOW) as server, Sensor(server.port) as sensor:
        await client.post(sensor)
        message = Message(code=Code.POST, uri_path=("e",), uri_query=("now",), payload=BODY, echo=client.echo)
        answer = await client.answer(sensor, client.sealed(message))
    assert (answer.code, cbor2.loads(answer.payload)) == (Code.CHANGED, NOW)
