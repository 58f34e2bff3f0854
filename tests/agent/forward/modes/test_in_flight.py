"""Batches in flight are marked in order, only when they are acked, and never twice."""

import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from agent.forward.errors import RenewalError, SessionError
from agent.forward.kafka.topic import LeaderEpochs
from agent.forward.modes.in_flight import InFlightBatch, InFlightWindow
from agent.store.port import Batch, Offsets


def delivered(partition: int, offset: int | None) -> Message:
    if offset is None:
        return Message(topic="t", partition=partition)
    return Message(topic="t", partition=partition, offset=offset)


LEADERS: LeaderEpochs = {0: 4, 1: 4, 2: 4, 3: 4}


def in_flight(first: int, count: int, leader_epochs: LeaderEpochs = LEADERS) -> InFlightBatch:
    sending = InFlightBatch(first, leader_epochs)
    for position in range(first, first + count):
        sending.sent(position)
    return sending


def batches(window: InFlightWindow, count: int) -> list[Batch]:
    return [confirmed.batch("id", LEADERS) for confirmed in window.pop_confirmed(window.confirmed_to + count)]


@pytest.mark.parametrize("before", [{}, {3: 3}, {2: 4}])
@pytest.mark.parametrize("after", [{3: 4}, {2: 3, 3: 5}])
def test_a_batch_whose_leader_is_not_the_same_before_its_first_send_and_after_its_last_ack_is_none(
    before: LeaderEpochs, after: LeaderEpochs
) -> None:
    sending = in_flight(5, 1, before)
    sending.report(None, delivered(3, 70))

    with pytest.raises(RenewalError, match="partition 3"):
        sending.batch("id", after)


def test_a_leader_that_does_not_answer_is_no_other_leader() -> None:
    sending = in_flight(5, 1)
    sending.report(None, delivered(3, 70))

    with pytest.raises(SessionError, match="partition 3: its leader does not report") as caught:
        sending.batch("id", {2: 4})

    assert not isinstance(caught.value, RenewalError)


@pytest.mark.parametrize(
    ("before", "after"), [({2: 1, 3: 4}, {2: 2, 3: 4}), ({}, {3: 0})], ids=["another partition", "a new partition"]
)
def test_only_another_leader_of_a_batchs_own_partitions_counts(before: LeaderEpochs, after: LeaderEpochs) -> None:
    sending = in_flight(5, 1, before)
    sending.report(None, delivered(3, 70))

    assert sending.batch("id", after) == Batch(5, 5, "id", {3: Offsets(70, 70, after[3])})


@pytest.mark.guarantee(4)
def test_a_delivery_without_an_offset_counts_as_not_sent() -> None:
    sending = in_flight(1, 1)

    sending.report(None, delivered(0, None))

    assert not sending.acked
    assert sending.failure == "a delivery was reported without an offset"


def test_only_a_refusal_for_its_size_makes_a_flight_refused() -> None:
    expired, large = in_flight(1, 1), in_flight(2, 1)

    expired.report(KafkaError(KafkaError._MSG_TIMED_OUT), delivered(0, None))
    large.report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), delivered(0, None))

    assert (expired.refused, large.refused) == (False, True)
    assert None not in (expired.failure, large.failure)


def test_a_failed_delivery_fails_its_flight_and_not_those_before() -> None:
    window = InFlightWindow(8)
    good, bad, behind = in_flight(1, 1), in_flight(2, 2), in_flight(4, 1)
    for sending in (good, bad, behind):
        window.add(sending)

    good.report(None, delivered(0, 0))
    behind.report(None, delivered(0, 3))
    bad.report(KafkaError(KafkaError._MSG_TIMED_OUT), delivered(0, None))
    bad.report(None, delivered(0, 2))

    assert window.advance() is not None
    assert (window.acked, window.in_flight) == (1, 2)


def test_beyond_a_thousand_acked_batches_that_nobody_confirms_there_is_no_space() -> None:
    window = InFlightWindow(1)
    found = []
    for first in range(1, 1_001):
        found.append(window.has_space)
        sending = in_flight(first, 1)
        window.add(sending)
        sending.report(None, delivered(0, first))
        window.advance()
    assert all(found)
    assert (window.acked, window.has_space) == (1_000, False)

    window.pop_confirmed(1)

    assert (window.acked, window.has_space) == (999, True)


@given(data=st.data(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_marks_cover_every_position_once_and_in_order_whatever_order_reports_come_in(
    data: st.DataObject, sizes: list[int]
) -> None:
    window = InFlightWindow(len(sizes))
    reports: list[tuple[InFlightBatch, int]] = []
    first = 1
    for size in sizes:
        sending = in_flight(first, size)
        window.add(sending)
        reports += [(sending, position) for position in range(first, first + size)]
        first += size
    marked: list[Batch] = []
    unreported = {position for _, position in reports}
    for sending, position in data.draw(st.permutations(reports)):
        sending.report(None, delivered(position % 3, position))
        unreported.discard(position)
        assert window.advance() is None
        if window.acked and data.draw(st.booleans()):
            marked += batches(window, data.draw(st.integers(1, window.acked)))
        assert not any(batch.first <= position <= batch.last for batch in marked for position in unreported)
    marked += batches(window, window.acked)

    assert window.empty
    covered = [position for batch in marked for position in range(batch.first, batch.last + 1)]
    assert covered == list(range(1, first))
    for batch in marked:
        for partition, span in batch.partitions.items():
            own = [position for position in range(batch.first, batch.last + 1) if position % 3 == partition]
            assert (span.lowest, span.highest) == (own[0], own[-1])
