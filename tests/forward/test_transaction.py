"""The intent and the marker: read as they were written, whatever the client reads beyond the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.forward.topic import LogEnd
from agent.forward.transaction import Intent, Marker, parse_marker, read_intent
from agent.store.port import Batch, Offsets
from contract.event import Label

EPOCH = "0123456789abcdef"
epochs = st.text("0123456789abcdef", min_size=16, max_size=16)
markers = st.builds(Marker, epochs, st.integers(1, 1 << 62))
labels = st.builds(Label, epochs, st.integers(1, 1 << 62))
intents = st.builds(
    Intent,
    markers,
    st.none() | markers,
    st.integers(1, 1 << 40),
    st.integers(1, 1 << 40),
    st.tuples(labels, labels),
    st.text(min_size=1),
    st.dictionaries(st.integers(0, 100), st.integers(0, 1 << 62)),
)


@given(markers, st.binary(max_size=30))
def test_a_marker_is_read_as_it_was_written_whatever_follows_it(marker: Marker, beyond: bytes) -> None:
    assert parse_marker(str(marker).encode() + beyond) == marker


@given(intents)
def test_an_intent_is_read_as_it_was_written(intent: Intent) -> None:
    assert read_intent(str(intent)) == intent


@pytest.mark.parametrize("metadata", [b"", b"oncegate:t:1", b"0123:7", EPOCH.encode(), b"x" * 40])
def test_what_is_no_marker_is_none(metadata: bytes) -> None:
    assert parse_marker(metadata) is None


def test_no_transaction_has_no_intent() -> None:
    assert read_intent(None) is None
    assert read_intent("") is None


def test_a_recovered_batch_lies_between_the_bounds_and_leaves_out_where_nothing_came() -> None:
    intent = Intent(Marker(EPOCH, 1), None, 5, 9, (Label(EPOCH, 5), Label(EPOCH, 9)), "topic", {0: 10, 1: 20, 2: 0})
    ends = {0: LogEnd(17, 3), 1: LogEnd(20, 3), 2: LogEnd(0, None), 3: LogEnd(4, 1)}

    assert intent.recovered(5, 9, ends) == Batch(5, 9, "topic", {0: Offsets(10, 16, 3), 3: Offsets(0, 3, 1)})
