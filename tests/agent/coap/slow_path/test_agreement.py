"""The fast path and aiocoap return equal answers; and no input ends either or makes it log an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.coap.message import uint
from agent.coap.server import CoapServer
from agent.config.settings import CoapSettings
from agent.delivery import Answer, Delivery, Respond, Status
from tests.agent.coap.sensor import ACK, CHANGED, CON, NON, POST, Sensor, datagram, post
from tests.agent.coap.serving import GENEROUS
from tests.agent.recorder import DURABLE
from tests.support.mutations import mutated

ACCEPT, CONTENT_FORMAT, URI_HOST, URI_PATH, URI_PORT, URI_QUERY, OBSERVE = 17, 12, 3, 11, 7, 15, 6

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


class Log(logging.Handler):
    """Keeps what is logged of trouble."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.troubles: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.troubles.append(record.getMessage())


@dataclass(frozen=True, slots=True)
class TwinServers:
    """The fast path, and aiocoap behind the same sanitizer, in one loop; `troubles` must stay empty."""

    fast: CoapServer
    aiocoap: CoapServer
    troubles: list[str]
    _runner: asyncio.Runner

    def exchange(self, port: int, raw: bytes) -> list[Exchanged]:
        """Send a datagram from a fresh port; return type, code, token, options and payload of all answers."""
        return self._runner.run(_exchanged(port, raw))


async def _exchanged(port: int, raw: bytes) -> list[Exchanged]:
    with Sensor(port) as sensor:
        return [(answer.kind, answer.code, answer.token, answer.rest) for answer in await sensor.ask_all(raw)]


def by_media(delivery: Delivery, respond: Respond) -> None:
    """Accept bodies of known formats."""
    respond(DURABLE if delivery.media is not None else Answer(Status.UNKNOWN_FORMAT))


@pytest.fixture(scope="module")
def twins() -> Iterator[TwinServers]:
    log, settings = Log(), CoapSettings(bind="[::1]:0")
    logging.getLogger().addHandler(log)
    fast, slow = (CoapServer(settings, by_media, tuning=GENEROUS, fast=each) for each in (True, False))
    with asyncio.Runner() as runner:
        for server in (fast, slow):
            runner.run(server.__aenter__())
        yield TwinServers(fast, slow, log.troubles, runner)
        for server in (fast, slow):
            runner.run(server.__aexit__(None, None, None))
    logging.getLogger().removeHandler(log)
    assert log.troubles == []


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
