"""Intent and marker: parsed as written, regardless of bytes that the client reads beyond the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.forward.delivery.transaction import Intent, Marker, parse_marker, read_intent
from agent.forward.receipts.group_offsets import NO_LABEL
from agent.forward.receipts.truncation import RecordLabel
from agent.store.port import Batch, Offsets
from contract.event import Label

EPOCH = "0123456789abcdef"
epochs = st.text("0123456789abcdef", min_size=16, max_size=16)
markers = st.builds(Marker, epochs, st.integers(1, 1 << 62))
labels = st.builds(Label, epochs, st.integers(1, 1 << 62))
positions = st.integers(1, 1 << 40)
offsets = st.builds(Offsets, positions, positions, st.none() | st.integers(0, 1 << 30))
intents = st.builds(
    Intent,
    markers,
    st.none() | markers,
    st.builds(Batch, positions, positions, st.text(min_size=1), st.dictionaries(st.integers(0, 100), offsets)),
    st.tuples(labels, labels),
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


def test_an_intent_holds_the_labels_between_its_ends_and_no_other_gateways() -> None:
    one = Intent(Marker(EPOCH, 1), None, Batch(5, 9, "topic"), (Label(EPOCH, 5), Label(EPOCH, 9)))
    assert one.holds("gw", RecordLabel("gw", EPOCH, 5))
    assert one.holds("gw", RecordLabel("gw", EPOCH, 9))
    assert not one.holds("gw", RecordLabel("gw", EPOCH, 10))
    assert not one.holds("gw", RecordLabel("gw", "f" * 16, 7))
    assert not one.holds("gw", RecordLabel("other", EPOCH, 7))
    assert not one.holds("gw", NO_LABEL)

    two = Intent(Marker(EPOCH, 1), None, Batch(5, 9, "topic"), (Label(EPOCH, 5), Label("f" * 16, 2)))
    assert two.holds("gw", RecordLabel("gw", EPOCH, 800))
    assert two.holds("gw", RecordLabel("gw", "f" * 16, 1))
    assert not two.holds("gw", RecordLabel("gw", EPOCH, 4))
    assert not two.holds("gw", RecordLabel("gw", "f" * 16, 3))
