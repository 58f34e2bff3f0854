"""Intent and marker are parsed as written, whatever follows; a transaction that fails meanwhile is reported."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from agent.forward.errors import SessionError
from agent.forward.kafka.client import LastError
from agent.forward.modes.exactly_once import TransactionalSession
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.lanes import ForwardedLane
from agent.forward.modes.session import SessionContext
from agent.forward.modes.transaction import Intent, Marker, parse_marker, read_intent
from agent.forward.modes.transactional import TransactionalProducer, still_new
from agent.store.port import Batch, LabelRange, Offsets, StoredEvent
from contract.event import Label
from tests.agent.forward.events import readings
from tests.support.memory_outbox import MemoryOutbox, stored

EPOCH = "0123456789abcdef"
epochs = st.text("0123456789abcdef", min_size=16, max_size=16)
markers = st.builds(Marker, epochs, st.integers(1, 1 << 62))
positions = st.integers(1, 1 << 40)
offsets = st.builds(Offsets, positions, positions, st.none() | st.integers(0, 1 << 30))
intents = st.builds(
    Intent,
    markers,
    st.none() | markers,
    st.builds(Batch, positions, positions, st.text(min_size=1), st.dictionaries(st.integers(0, 100), offsets)),
    st.lists(st.builds(LabelRange, epochs, positions, positions), min_size=1, max_size=4).map(tuple),
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


def test_an_intent_holds_the_labels_of_its_events_in_each_epoch_and_no_others() -> None:
    middle, last = "e" * 16, "f" * 16
    given = [*((EPOCH, number) for number in range(5, 10)), (middle, 1), (middle, 2), (last, 1)]
    ranges = (LabelRange(EPOCH, 5, 9), LabelRange(middle, 1, 2), LabelRange(last, 1, 1))
    intent = Intent(Marker(EPOCH, 1), None, Batch(5, 12, "topic"), ranges)
    assert all(intent.holds(Label(*label)) for label in given)
    for epoch, number in ((EPOCH, 4), (EPOCH, 10), (middle, 3), (last, 2), ("d" * 16, 1)):
        assert not intent.holds(Label(epoch, number))


@pytest.mark.guarantee(4)
def test_events_of_a_transaction_that_cannot_be_read_now_are_not_taken_for_marked() -> None:
    class DamagedOutbox(MemoryOutbox):
        def read(self, after: int, events_max: int, bytes_max: int) -> Sequence[StoredEvent]:
            return [event for event in super().read(after, events_max, bytes_max) if event.position <= 5]

    outbox = DamagedOutbox(*readings(10))
    found = still_new(outbox, Intent(Marker(EPOCH, 1), None, Batch(1, 10, "topic"), tuple(outbox.labels(1, 10))))

    assert [event.position for event in next(found)] == [1, 2, 3, 4, 5]
    with pytest.raises(SessionError, match="its events cannot be read now"):
        next(found)


def test_a_transaction_that_has_failed_meanwhile_is_reported_with_its_reason() -> None:
    class FailedProducer:
        """Has librdkafka's state after a delivery report has ended its transaction."""

        def produce(self, *_: Any, **__: Any) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message: Local: Erroneous state"))

        def send_offsets_to_transaction(self, *_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed"))

    parts = SimpleNamespace(topic="events", gateway="gw1", partition=-1, sign=None, lane=ForwardedLane())
    context = cast("SessionContext", parts)
    transactions = TransactionalProducer(cast("Any", FailedProducer()), LastError(), None, 9.0)
    topic = cast("Any", SimpleNamespace(ends={}))
    session = TransactionalSession(context, transactions, cast("Any", None), topic, None, 0, cast("Any", None))

    with pytest.raises(SessionError, match="Topic authorization failed"):
        session._produce([stored(1, next(readings(1)))], InFlightBatch(1, {}))
