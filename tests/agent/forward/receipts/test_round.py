"""A round of the receipts confirms what was acked before it, and decides on no batch that was acked after it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.modes.in_flight import InFlightWindow
from agent.forward.receipts import round as shared_round
from agent.forward.receipts.poller import FLOWING, ReceiptPoller
from agent.forward.receipts.round import ROUND_EVENTS, Acked, SharedRound
from agent.forward.receipts.rules import PartitionView, View
from agent.store.port import Batch
from agent.telemetry.links import LinkName, Links
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import processed
from tests.agent.forward.events import readings
from tests.agent.forward.modes.test_in_flight import LEADERS, delivered, in_flight
from tests.agent.forward.running import GATEWAY, forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

VIEW = View("id", {0: PartitionView(0, None, 9, LEADERS[0])})


class Session:
    """A session without a producer: what it acks and marks."""

    def __init__(self, shared: SharedRound) -> None:
        self.shared = shared
        self.outbox = MemoryOutbox()
        self.window = InFlightWindow(8)
        self._acked = 0

    def ack(self, partition: int = 0) -> None:
        self._acked += 1
        self.outbox.append(*readings(1, self._acked))
        batch = in_flight(self._acked, 1)
        self.window.add(batch)
        batch.report(None, delivered(partition, self._acked))
        self.window.advance()
        self.shared.acked = self.window.noted

    def mark(self, to: int) -> None:
        for batch in self.window.pop_confirmed(to):
            self.outbox.mark_forwarded(batch.batch("id", LEADERS))

    def answer(self, acked: Acked) -> Sequence[Batch]:
        """Return what a poll gets that has noted these acks."""
        with ThreadPoolExecutor(1) as poller:
            polled = poller.submit(self.shared.confirm, acked, VIEW)
            wait_until(lambda: polled.done() or self.shared._answer is not None, "the poll has its answers")
            if (answer := self.shared.take(self.window)) is not None:
                self.mark(answer.acked.to)
                answer.hand_over(self.outbox, self.window.confirmed_to)
            return polled.result()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(shared_round, "MARK_SECONDS_MAX", 0.2)
    return Session(SharedRound(30.0))


@pytest.mark.guarantee(4)
def test_a_poll_gets_what_was_acked_before_its_first_question_and_nothing_later(session: Session) -> None:
    session.ack()
    session.ack()
    noted = session.shared.acked
    session.ack()

    assert [batch.last for batch in session.answer(noted)] == [1, 2]
    assert session.outbox.new == 1


@pytest.mark.guarantee(4)
def test_a_poll_gets_nothing_once_later_acks_are_confirmed(session: Session) -> None:
    session.ack()
    noted = session.shared.acked
    session.ack()
    session.mark(2)

    assert not session.answer(noted)


@pytest.mark.guarantee(4)
def test_the_answers_of_a_former_session_confirm_nothing(session: Session) -> None:
    session.ack()
    noted = session.shared.acked
    session.window = InFlightWindow(8)

    assert not session.answer(noted)
    assert session.outbox.new == 1


def test_without_an_answer_of_each_leader_nothing_is_confirmed(session: Session) -> None:
    session.ack(partition=1)

    assert not session.answer(session.shared.acked)
    assert session.outbox.new == 1


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_one_round_confirms_and_receipts_what_was_acked(kafka: KafkaTopic) -> None:
    outbox, shared = MemoryOutbox(*readings(10)), SharedRound(30.0)
    with forwarding(kafka.settings(), outbox, shared=shared):
        wait_for_count(lambda: shared.acked.events, 10, "all are acked")
        assert outbox.new == 10
        kafka.commit(None, kafka.receipt())
        with receipting(kafka.settings(), outbox, shared=shared) as links:
            wait_for_count(lambda: processed(outbox), 10, "all are processed")
            assert links.state(LinkName.RECEIPTS) == FLOWING
        to = shared.acked.to
        outbox.append(*readings(10, 10))
        wait_until(lambda: shared.acked.to > to and shared.acked.events == 10, "more are acked")
    assert outbox.new == 0  # a stop does not wait for a round


@pytest.mark.parametrize(("poll_seconds", "seconds"), [(30.0, 90), (300.0, 360), (3_600.0, 660)])
def test_acks_wait_for_a_late_round_and_less_than_the_alert_of_events_that_are_not_sent(
    poll_seconds: float, seconds: int
) -> None:
    assert SharedRound(poll_seconds).patience_ms == seconds * 1_000


def test_a_long_interval_ends_once_many_events_are_acked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.forward.receipts.poller.ROUND_SECONDS_MIN", 0.01)
    shared, settings = SharedRound(3_600.0), ReceiptSettings(poll_seconds=3_600.0)
    parts = (KafkaSettings("127.0.0.1:1"), settings, GATEWAY, MemoryOutbox(), Links(SystemClock()), Random(7))
    poller = ReceiptPoller(*parts, shared=shared)
    shared.acked = Acked(None, 1, ROUND_EVENTS)
    assert not poller._wait(threading.Event())
