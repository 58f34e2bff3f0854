"""Any bytes are either decoded or undecodable, and decoded events never fail later."""

import json
import tracemalloc
from random import Random
from time import process_time

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.decode.decoded import Decoded, Undecodable
from agent.decode.delivery_body import decode
from agent.decode.senml import CBOR_LABELS
from agent.delivery import Delivery, Media
from benchmarks.bodies import slow_bodies
from contract.event import Event, Label
from contract.fingerprint import fingerprint
from contract.record import ClockTrust, SharedDay, encode_record, encode_tail
from tests.agent.decode.deliveries import SENDER
from tests.contract import forms
from tests.contract.strategies import events, flat_events, randoms
from tests.support.mutations import mutated

LABEL = Label("00c0ffee00c0ffee", 1)
SECONDS_MAX = 2.0
MEMORY_BYTES_MAX = 32 << 20

cbor_items = st.lists(
    st.integers(0, 255).map(lambda byte: bytes((byte,)))
    | st.sampled_from([b"\x61a", b"\x80", b"\xa1", b"\x9f", b"\xff"])
)
json_pieces = st.sampled_from(
    [*'{}[],:"- 1', '"a"', '"id"', '"data"', '"n"', '"v"', '"bn":"a"', "1e999", "NaN", "null", "\\u", "\\ud800"]
)


unusual = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, 1, -1, 1.5, 17.0, 1e999, float("nan"), 1 << 63, 1 << 64, -(1 << 63) - 1, 1e300, 1.7e9])
    | st.sampled_from(
        ["", "a", "a:b", "x/", "AA", "+", "\u00e9", "e\u0301", "\0", "$bytes", "urn:oncegate:x", "gateway.x"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "$bytes", "\u00e9", "e\u0301"]), inner, max_size=3)
    ),
    max_leaves=4,
)
"""Values at and beyond the limits of the rules, in both formats."""


def _bodies_of(fields: list[str]) -> st.SearchStrategy[list[dict[str, object]]]:
    return st.lists(st.dictionaries(st.sampled_from(fields), unusual, max_size=4), max_size=5)


def survives(body: bytes, media: Media, query: dict[str, str] | None = None) -> None:
    try:
        decoded = decode(Delivery(body, media, "coap", SENDER, query=query or {}))
    except Undecodable as error:
        refusal = str(error)
    else:
        refusal = "decoded"
        goes_on(decoded)
    assert 0 < len(refusal) < 500


def goes_on(decoded: Decoded) -> None:
    """Process the events like the pipeline."""
    for event in decoded.events:
        name = fingerprint(event, label=LABEL)
        tail = encode_tail(event, 0, "coap")
        encode_record(name, "gw", LABEL, tail, ClockTrust.TRUSTED, SharedDay.NONE, None)
    for rejected in decoded.rejected:
        assert len(rejected.raw) <= 4096
        assert rejected.reason
        assert len(rejected.reason) < 500
        rejected.device.encode()


@pytest.mark.guarantee(6)
@given(
    st.tuples(st.sampled_from(Media), st.binary(max_size=200))
    | st.tuples(st.sampled_from([Media.CBOR, Media.SENML_CBOR]), cbor_items.map(b"".join))
    | st.tuples(st.sampled_from([Media.JSON, Media.SENML_JSON]), st.lists(json_pieces).map("".join).map(str.encode))
)
@settings(max_examples=300)
def test_any_bytes_and_what_looks_like_cbor_or_json(drawn: tuple[Media, bytes]) -> None:
    survives(drawn[1], drawn[0])


@given(_bodies_of(["device", "type", "id", "boot", "time", "data", "units", "x"]))
@settings(max_examples=300)
def test_well_formed_events_with_unusual_values(maps: list[dict[str, object]]) -> None:
    survives(json.dumps(maps).encode(), Media.JSON)
    survives(cbor2.dumps(maps), Media.CBOR)


@given(_bodies_of(["bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x", "x_"]))
@settings(max_examples=300)
def test_well_formed_senml_with_unusual_values(records: list[dict[str, object]]) -> None:
    survives(json.dumps(records).encode(), Media.SENML_JSON)
    numbers = {name: number for number, name in CBOR_LABELS.items()}
    survives(cbor2.dumps([{numbers.get(k, k): v for k, v in record.items()} for record in records]), Media.SENML_CBOR)


@given(events, flat_events, randoms)
@settings(max_examples=200)
def test_mutated_events(event: Event, flat: Event, random: Random) -> None:
    bodies = {
        Media.JSON: forms.json_form(event, random),
        Media.CBOR: forms.cbor_form([forms.entries_of(event), forms.entries_of(flat)], random),
        Media.SENML_JSON: forms.senml_json_form(flat, random),
        Media.SENML_CBOR: forms.senml_cbor_form(flat, random),
    }
    for media, body in bodies.items():
        survives(body, media)
        for _ in range(5):
            survives(mutated(body, random), media)


@given(st.dictionaries(st.sampled_from(["d", "id", "boot", "t", "type", "x"]), st.text(max_size=300)))
@example({"id": "1" * 5000})
@example({"d": "\ud800"})
def test_any_query(query: dict[str, str]) -> None:
    survives(b"{}", Media.JSON, query)
    survives(b'[{"n":"a:b","v":1}]', Media.SENML_JSON, query)


BOMBS = slow_bodies()


@pytest.mark.guarantee(6)
@pytest.mark.heavy
@pytest.mark.parametrize("media", list(Media), ids=lambda media: media.name)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_costs_little_time_and_memory(bomb: str, media: Media) -> None:
    start = process_time()
    survives(BOMBS[bomb], media)
    assert process_time() - start < SECONDS_MAX
    tracemalloc.start()
    try:
        survives(BOMBS[bomb], media)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
