"""The fast path and aiocoap return equal answers; and no input ends either or makes it log an error."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from aiocoap import Context, Message, resource  # type: ignore[import-untyped] # aiocoap carries no types
from aiocoap.numbers.codes import Code  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.coap.message import media_of, uint
from tests.agent.coap.sensor import ACK, CHANGED, CON, NON, POST, datagram, post
from tests.agent.coap.slow_path.twin_servers import TwinServers
from tests.support.mutations import mutated

ACCEPT, CONTENT_FORMAT, URI_HOST, URI_PATH, URI_PORT, URI_QUERY, OBSERVE = 17, 12, 3, 11, 7, 15, 6

MESSAGE_IDS = count(step=4)  # the others are for the pings
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


@pytest.fixture(scope="module")
def twins() -> Iterator[TwinServers]:
    with TwinServers() as opened:
        yield opened
    assert opened.troubles == []


class Reference(resource.Resource):  # type: ignore[misc] # aiocoap carries no types
    """The behaviour of a server that uses aiocoap alone."""

    async def render_post(self, request: Message) -> Message:
        content_format = request.opt.content_format
        media = media_of(None if content_format is None else int(content_format), request.payload)
        return Message(code=Code.CHANGED if media else Code.UNSUPPORTED_CONTENT_FORMAT)


@pytest.fixture(scope="module")
def reference_port(twins: TwinServers) -> Iterator[int]:
    site = resource.Site()
    for path in ("e", "events"):
        site.add_resource([path], Reference())
    context = twins.run(Context.create_server_context(site, bind=("::1", 0), transports=["udp6"]))
    yield context.request_interfaces[0].token_interface.message_interface._local_port()
    twins.run(context.shutdown())


@examples
@given(raw=requests(SOUND))
def test_a_sound_request_gets_the_answer_of_a_server_of_aiocoap_alone(
    twins: TwinServers, reference_port: int, raw: bytes
) -> None:
    # aiocoap alone treats a repeated Message ID from one port as a retransmission, and ports are reused.
    fresh = raw[:2] + next(MESSAGE_IDS).to_bytes(2, "big") + raw[4:]
    ours, reference = (twins.exchange(port, fresh) for port in (twins.fast.port, reference_port))
    assert [answer[:3] for answer in ours] == [answer[:3] for answer in reference]


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
