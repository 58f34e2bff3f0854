"""A stored event becomes the record that the design specifies."""

import json

from hypothesis import given
from hypothesis import strategies as st

from agent.forward.kafka.record import encode
from contract.event import Event, Label
from contract.record import STATEMENT, read_stated_label
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
