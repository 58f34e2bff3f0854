"""A stored event becomes the record that the design specifies."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.forward.kafka.record import encode
from agent.store.port import StoredEvent
from contract.event import Event, Label
from contract.record import STATEMENT, ClockTrust, Shared, encode_tail, read_stated_label
from tests.support.memory_outbox import stored

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NAMES = st.none() | st.integers(-(2**63), 2**64 - 1) | TEXT
EVENTS = st.builds(
    Event,
    device=TEXT,
    type=TEXT,
    id=NAMES,
    boot=NAMES,
    time=st.none() | st.integers(-(10**12), 10**13),
    data=st.none() | st.dictionaries(TEXT, st.integers(-9, 9) | TEXT, max_size=3),
    units=st.none(),
    offset_ms=st.none() | st.integers(-(10**6), 10**6),
)


@given(event=EVENTS)
def test_value_and_headers_tell_of_the_same_event(event: Event) -> None:
    key, text, listed = encode(stored(7, event), "gw-1")

    value = json.loads(text)
    headers = dict(listed)
    assert key == event.device.encode()
    assert value["device"] == event.device
    assert value["fingerprint"].encode() == headers["ce_id"]
    assert read_stated_label(headers[STATEMENT]) == (value["gateway"], Label(value["epoch"], value["sequence"]))


def test_the_record_is_the_one_of_the_design() -> None:
    event = Event(
        "urn:dev:mac:00124b0000000001", id=41, boot=3, time=1_763_706_000_123, data={"temperature": 21.5},
        units={"temperature": "Cel"},
    )  # fmt: skip
    fingerprint = bytes(range(16))
    tail = encode_tail(event, 1_763_706_000_500, "coap")
    label = Label("00ff00ff00ff00ff", 12)

    key, value, headers = encode(
        StoredEvent(9, label, fingerprint, tail, ClockTrust.TRUSTED, Shared.TIME, event.time), "gw-1"
    )

    assert key == b"urn:dev:mac:00124b0000000001"
    assert value == (
        b'{"fingerprint":"000102030405060708090a0b0c0d0e0f","gateway":"gw-1","epoch":"00ff00ff00ff00ff","sequence":12,'
        b'"device":"urn:dev:mac:00124b0000000001","type":"reading","id":41,"boot":3,"time":1763706000123,'
        b'"received":1763706000500,"via":"coap","data":{"temperature":21.5},"units":{"temperature":"Cel"}}'
    )
    assert headers == [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"oncegate.reading"),
        ("ce_source", b"urn:dev:mac:00124b0000000001"),
        ("ce_id", b"000102030405060708090a0b0c0d0e0f"),
        ("ce_time", b"2025-11-21T06:20:00.123Z"),
        ("content-type", b"application/json"),
        ("ce_oncegate", b"gw-1 00ff00ff00ff00ff 12 1763706000500 trusted time 1763706000123"),
    ]
