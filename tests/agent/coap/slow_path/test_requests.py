"""Requests other than a plain POST: discovery, protocol errors, floods; and the answers of both paths are equal."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from logging.handlers import BufferingHandler

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.coap.message import uint
from agent.coap.server import CoapServer
from agent.coap.slow_path.requests import SENDER_SHARE, Budget, WaitingLine
from agent.coap.slow_path.resource import IN_PROGRESS_MAX
from agent.coap.tuning import Tuning
from agent.coap.udp import endpoint_of
from agent.config.settings import CoapSettings
from agent.delivery import Answer, Delivery, Respond, Status
from tests.agent.coap.sensor import (
    ACK,
    CHANGED,
    CON,
    CONTENT,
    CONTENT_FORMAT,
    CONTINUE,
    EMPTY,
    GET,
    NON,
    POST,
    PUT,
    RST,
    URI_PATH,
    URI_QUERY,
    Response,
    Sensor,
    datagram,
    post,
)
from tests.agent.coap.serving import GENEROUS, serving
from tests.agent.coap.slow_path.test_blocks import SIZE, Uploader
from tests.agent.recorder import DURABLE, Recorder
from tests.support.mutations import mutated
from tests.support.waiting import until

ACCEPT, OBSERVE, IF_MATCH, PROXY_URI, PROXY_SCHEME, NO_RESPONSE = 17, 6, 1, 35, 39, 258
URI_HOST, URI_PORT = 3, 7
BUSY = 0xA3
EVENTS = (URI_PATH, b"events")


async def answer_to(raw: bytes) -> Response:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        return await sensor.ask(raw)


async def test_a_sensor_finds_the_events_and_their_formats() -> None:
    request = datagram(CON, GET, options=((URI_PATH, b".well-known"), (URI_PATH, b"core")))
    response = await answer_to(request)
    headers = 28  # of IPv4 and UDP
    assert headers + len(response.rest) + 5 < 2 * (headers + len(request)), "amplifies what a forged source sends"
    listing = response.rest.partition(b"\xff")[2].decode()
    assert response.code == CONTENT
    links = {link.split(";")[0]: link for link in listing.replace(" ", "").split(",")}
    assert set(links) == {"</events>"}
    assert 'ct="5060110112"' in links["</events>"]
    assert 'rt="oncegate.events"' in links["</events>"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (datagram(CON, GET, options=(EVENTS,)), 0x85),
        (datagram(CON, PUT, options=(EVENTS,)), 0x85),
        (datagram(CON, 31, options=(EVENTS,)), 0x85),
        (datagram(CON, POST, options=((URI_PATH, b"elsewhere"),)), 0x84),
        (datagram(CON, POST), 0x84),
        (datagram(CON, POST, options=(EVENTS, (PROXY_URI, b"coap://elsewhere/e"))), 0xA5),
        (datagram(CON, POST, options=(EVENTS, (PROXY_SCHEME, b"http"))), 0xA5),
        (post(options=((9, b""),)), 0x82),
        (post(options=((IF_MATCH, b""),)), 0x82),
        (post(options=((65_001, b"?"),)), 0x82),
        (post(options=((ACCEPT, b"\0\0\0"),)), 0x82),
        (post(options=((ACCEPT, b""), (ACCEPT, b""))), 0x82),
        (post(options=((URI_QUERY, b"id=\xff"),)), 0x82),
        (post(path="e", options=((URI_PATH, b"\xff"),)), 0x82),
    ],
)
async def test_what_cannot_be_served_has_its_code(raw: bytes, code: int) -> None:
    response = await answer_to(raw)
    assert (response.kind, response.code, response.mid, response.token) == (ACK, code, 1, b"\x01")
    assert (b"post events to /events or /e" in response.rest) == (code in (0x84, 0x85))


@pytest.mark.parametrize(
    ("options", "fast"),
    [
        (((292, b"\x5d\x99\xe5\xee"),), True),
        (((292, b"a"), (292, b"b")), True),
        (((OBSERVE, b""),), True),
        (((ACCEPT, b""),), True),
        (((16, b"\x08"),), True),
        (((60, b"\x2c"),), True),
        (((252, b"echo"),), True),
        (((65_000, b"?"),), True),
        (((3, b"gateway.local"), (7, b"\x16\x33")), True),
        (((4, b""),), True),
        (((20, b"\xff\xfe"),), True),
        (((12, b"\0\0\0"),), False),
        (((NO_RESPONSE, b""),), False),
        (((23, b""),), False),
    ],
    ids=lambda case: "+".join(str(number) for number, _ in case) if isinstance(case, tuple) else "",
)
async def test_options_that_may_be_ignored_are(options: tuple[tuple[int, bytes], ...], fast: bool) -> None:
    """As libcoap's Request-Tag, which is in each POST from version 4.3.2."""
    recorder = Recorder()
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        assert (await sensor.ask(post(options=options))).code == CHANGED
        assert server.counters.fast == fast
    assert len(recorder.deliveries) == 1


async def test_no_response_is_honoured() -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        sensor.send(post(kind=NON, options=((NO_RESPONSE, b"\x02"),)))
        await sensor.expect_silence()


@pytest.mark.parametrize(
    "raw",
    [
        b"\x49\x02\x00\x01" + b"t" * 9,  # a token of 9 bytes
        b"\x44\x02\x00\x01\x01",  # a truncated token
        b"\x40\x02\x00\x01\xb6event",  # a truncated option
        b"\x40\x02\x00\x01\xbd",
        b"\x40\x02\x00\x01\xd0",
        b"\x40\x02\x00\x01\xf0",  # a reserved delta
        b"\x40\x02\x00\x01\xbf",  # a reserved length
        b"\x40\x02\x00\x01\xb1e\xff",  # a marker without a payload
        b"\x40\x00\x00\x01more",  # an empty message with content
        b"\x40\x45\x00\x01",  # a response without a request
        b"\x40\xe1\x00\x01",  # a reserved class
        b"\x40\x20\x00\x01",
    ],
    ids=lambda raw: raw.hex(),
)
async def test_a_confirmable_message_that_makes_no_sense_is_reset(raw: bytes) -> None:
    async with serving(Recorder()) as server, Sensor(server.port) as sensor:
        assert await sensor.ask(raw) == Response(RST, EMPTY, 1, b"", b"")
        sensor.send(bytes((raw[0] | NON,)) + raw[1:])
        await sensor.expect_silence()
        assert server.counters.malformed == 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x40\x02\x00",
        b"\x80\x02\x00\x01",
        b"\x50\x00\x00\x01",
        b"\x60\x00\x00\x01",
        b"\x70\x00\x00\x01",
        b"\x60\x02\x00\x01\xb1e",
        b"\x60\x45\x00\x01",
        post(kind=NON, options=((9, b""),)),
    ],
    ids=lambda raw: raw.hex()[:20],
)
async def test_what_deserves_no_answer_gets_none(raw: bytes, recorder: Recorder) -> None:
    async with serving(recorder) as server, Sensor(server.port) as sensor:
        sensor.send(raw)
        await sensor.expect_silence()
    assert recorder.deliveries == []


async def test_too_many_slow_path_requests_in_progress_are_refused_for_now() -> None:
    recorder = Recorder(answer=None)
    async with serving(recorder, Tuning(slow_per_second=1e6), fast=False) as server, Sensor(server.port) as sensor:
        for mid in range(IN_PROGRESS_MAX):
            sensor.send(post(mid=mid))
        await recorder.received(IN_PROGRESS_MAX)
        refused = await sensor.ask(post(mid=9_999))
        assert (refused.code, refused.mid, refused.rest[:3]) == (0xA3, 9_999, b"\xd1\x01\x05")
        for _ in range(IN_PROGRESS_MAX):
            recorder.respond()


@pytest.mark.guarantee(6)
async def test_slow_path_requests_beyond_their_budget_are_refused_for_now_and_plain_posts_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    tuning = Tuning(slow_per_second=2.0, refusals_per_second=10.0)
    request = datagram(CON, GET, 100, options=(EVENTS,))
    async with serving(Recorder(), tuning) as server, Sensor(server.port) as sensor:
        for mid in range(100, 150):
            sensor.send(datagram(CON, GET, mid, options=(EVENTS,)))
        for mid in range(50):
            sensor.send(post(mid=mid))
        messages = [await sensor.receive() for _ in range(2 + 10 + 50)]
        assert server.counters.fast == 50
        assert server.counters.shed >= 40
    codes = Counter(message.code for message in messages)
    assert (codes[CHANGED], codes[BUSY]) == (50, 10)
    refusals = [message for message in messages if message.code == BUSY]
    assert {message.rest for message in refusals} == {b"\xd1\x01\x05"}  # Max-Age, and no payload
    assert 5 + len(refusals[0].rest) <= len(request)
    assert [record.message for record in caplog.records].count(
        "coap=shedding reason='requests of the slow path exceed their budget'"
    ) == 1


async def test_an_upload_beyond_the_budget_is_delayed_and_not_interrupted(recorder: Recorder) -> None:
    """go-coap's client does not retransmit blocks after the first."""
    async with serving(recorder, Tuning(slow_per_second=40.0)) as server, Sensor(server.port) as sensor:
        codes = await Uploader(sensor).upload(bytes(60 * SIZE))
        assert (codes.count(CONTINUE), server.counters.shed) == (59, 0)
    assert [len(delivery.body) for delivery in recorder.deliveries] == [60 * SIZE]


async def test_a_flood_from_one_address_delays_those_of_others_by_its_share_only() -> None:
    served = list[str]()
    line = WaitingLine(Budget(32.0, asyncio.get_running_loop().time()), lambda _, sender: served.append(sender.sender))
    flood, other = (endpoint_of((f"2001:db8::{host}", 1, 0, 0), b"") for host in ("bad", "1"))
    now = asyncio.get_running_loop().time()
    enqueued = [line.enqueue(b"x", flood, now) for _ in range(1_000)]
    assert (len(served), enqueued.count(True)) == (32, 32 + 32 // SENDER_SHARE)
    assert line.enqueue(b"x", other, now)
    await until(lambda: other.sender in served, "the other one is served")
    assert served.index(other.sender) == 32 + 32 // SENDER_SHARE
    line.close()


Options = tuple[tuple[int, bytes], ...]

examples = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


def optional(number: int, values: st.SearchStrategy[bytes]) -> st.SearchStrategy[Options]:
    return st.just(()) | values.map(lambda value: ((number, value),))


TEXT = st.text(st.characters(codec="utf-8"), max_size=20).map(str.encode)
WORDS = st.sets(st.sampled_from((b"d=7", b"id=7", b"boot=7", b"t=7", b"type=7", b"now"))).map(
    lambda words: tuple((URI_QUERY, word) for word in words)
)
PATHS = st.sampled_from((b"e", b"events", b"other", b"")).map(lambda path: ((URI_PATH, path),))
SOUND = st.tuples(
    PATHS,
    optional(CONTENT_FORMAT, st.sampled_from((0, 50, 60, 110, 112, 10_000)).map(uint)),
    optional(URI_HOST, st.sampled_from((b"gateway.local", b"[::1]", b"a"))),
    optional(URI_PORT, st.integers(0, 65_535).map(uint)),
    optional(ACCEPT, st.sampled_from((b"", b"\x3c"))),
    optional(OBSERVE, st.just(b"")),
    optional(65_000, st.binary(max_size=300)),
    WORDS,
).map(lambda groups: tuple(option for group in groups for option in group))
ANY_OPTION = st.tuples(st.integers(0, 300) | st.sampled_from((1, 3, 5, 7, 9, 11, 12, 15, 17, 23, 27, 35, 39)), TEXT)
UNUSUAL = st.tuples(SOUND, st.lists(ANY_OPTION | st.tuples(st.integers(0, 60), st.binary(max_size=9)), max_size=3)).map(
    lambda both: both[0] + tuple(both[1])
)


def requests(options: st.SearchStrategy[Options]) -> st.SearchStrategy[bytes]:
    kinds, tokens = st.sampled_from((CON, NON)), st.binary(max_size=8)
    return st.builds(
        datagram, kinds, st.just(POST), st.integers(0, 65_535), tokens, options, st.binary(min_size=1, max_size=80)
    )


Exchanged = tuple[int, int, bytes, bytes]


@dataclass(frozen=True, slots=True)
class TwinServers:
    """The fast path, and aiocoap behind the same sanitizer, in one loop; `troubles` must stay empty."""

    fast: CoapServer
    aiocoap: CoapServer
    troubles: list[logging.LogRecord]
    _runner: asyncio.Runner

    def exchange(self, port: int, raw: bytes) -> list[Exchanged]:
        """Send a datagram from a fresh port; return type, code, token, options and payload of all answers."""
        return self._runner.run(_exchanged(port, raw))


async def _exchanged(port: int, raw: bytes) -> list[Exchanged]:
    with Sensor(port) as sensor:
        return [(answer.kind, answer.code, answer.token, answer.rest) for answer in await sensor.ask_all(raw)]


def by_media(delivery: Delivery, respond: Respond) -> None:
    respond(DURABLE if delivery.media is not None else Answer(Status.UNKNOWN_FORMAT))


@pytest.fixture(scope="module")
def twins() -> Iterator[TwinServers]:
    log, settings = BufferingHandler(capacity=1_000), CoapSettings(bind="[::1]:0")
    log.setLevel(logging.WARNING)
    logging.getLogger().addHandler(log)
    fast, slow = (CoapServer(settings, by_media, tuning=GENEROUS, fast=each) for each in (True, False))
    with asyncio.Runner() as runner:
        for server in (fast, slow):
            runner.run(server.__aenter__())
        yield TwinServers(fast, slow, log.buffer, runner)
        for server in (fast, slow):
            runner.run(server.__aexit__(None, None, None))
    logging.getLogger().removeHandler(log)
    assert log.buffer == []


@examples
@given(raw=requests(UNUSUAL) | st.builds(mutated, requests(UNUSUAL), st.randoms()))
def test_any_request_gets_the_same_answer_from_the_fast_path_and_from_aiocoap(twins: TwinServers, raw: bytes) -> None:
    assert twins.exchange(twins.fast.port, raw) == twins.exchange(twins.aiocoap.port, raw)
    assert twins.troubles == []


@pytest.mark.parametrize("value", [b"", b"\x07", b"\x3c", b"12345678", b"x" * 41], ids=len)
def test_each_option_has_the_same_answer_on_both_paths(twins: TwinServers, value: bytes) -> None:
    for number in (*range(70), 252, 258, 292, 2_048, 2_049, 65_000, 65_001):
        for options in (((number, value),), ((number, value),) * 2):
            kind = NON if number == 258 else CON  # aiocoap warns of its own ACK without the response
            raw = post(kind=kind, options=(*options, (URI_QUERY, b"now")))
            fast, slow = (twins.exchange(server.port, raw) for server in (twins.fast, twins.aiocoap))
            assert fast == slow, (number, len(options))


@pytest.mark.guarantee(6)
@examples
@given(
    raw=st.binary(max_size=60)
    | st.tuples(st.integers(0x40, 0x7F), st.binary(max_size=40)).map(lambda parts: bytes((parts[0],)) + parts[1])
)
def test_random_bytes_change_nothing_for_the_next_request(twins: TwinServers, raw: bytes) -> None:
    for server in (twins.fast, twins.aiocoap):
        assert len(twins.exchange(server.port, raw)) <= 1
        assert twins.exchange(server.port, post(token=b"next")) == [(ACK, CHANGED, b"next", b"")]
    assert twins.troubles == []
