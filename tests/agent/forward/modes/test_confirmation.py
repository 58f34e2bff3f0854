"""Acks wait for the receipts' next round, whose answers confirm them; the session asks only where that is too late."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import TopicWatch
from agent.forward.modes.confirmation import CONFIRM_BATCHES, CONFIRM_MS, Confirmation
from agent.forward.modes.in_flight import InFlightBatch, InFlightWindow
from agent.forward.receipts.round import PATIENCE_SECONDS, Confirmed, SharedRound
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.modes.test_in_flight import delivered
from tests.agent.store.stores import HandClock
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

POLL_SECONDS = 30.0


class CountingWatch(TopicWatch):
    """Counts the requests for the topic's description."""

    requests = 0

    def request(self) -> Future[TopicDescription]:
        self.requests += 1
        return super().request()


class Acks:
    """A window of acked batches, and their confirmation by a real broker at the times of a test."""

    def __init__(self, kafka: KafkaTopic) -> None:
        self.clock = HandClock()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        self.watch = CountingWatch(admin, kafka.topic, LastError())
        self.window = InFlightWindow(8)
        expected = self.watch.read_id(threading.Event())
        self.confirmation = Confirmation(self.watch, expected, self.clock, SharedRound(POLL_SECONDS))
        self.watch.requests = 0
        self._sent = 0

    def add(self, batches: int = 1) -> None:
        for _ in range(batches):
            self._sent += 1
            batch = InFlightBatch(self._sent, {0: 0})
            batch.sent(self._sent)
            batch.report(None, delivered(0, self._sent))
            self.window.add(batch)
        self.window.advance()

    def confirm(self) -> int:
        """Request where that is due; return how many batches are confirmed then."""
        before = self.watch.requests
        self.confirmation.request(self.window)
        if self.watch.requests == before:
            return 0
        found: list[Confirmed] = []

        def is_answered() -> bool:
            if (answer := self.confirmation.poll(self.window)) is not None:
                found.append(answer)
            return bool(found)

        wait_until(is_answered, "the broker's answer")
        return len(self.window.pop_confirmed(found[0].acked.to))


@pytest.fixture
def acks(kafka: KafkaTopic) -> Acks:
    return Acks(kafka)


@pytest.mark.kafka
def test_acks_wait_for_a_round_and_where_none_comes_the_session_asks(acks: Acks) -> None:
    assert acks.confirm() == 0  # since when there are acks
    acks.add()
    acks.clock.pass_seconds(POLL_SECONDS + PATIENCE_SECONDS - 1)
    acks.add()
    assert acks.confirm() == 0
    acks.clock.pass_seconds(1)
    assert acks.confirm() == 2


@pytest.mark.kafka
def test_a_backlog_does_not_wait_for_a_round(acks: Acks) -> None:
    assert acks.confirm() == 0
    acks.add(CONFIRM_BATCHES - 1)
    acks.clock.pass_seconds(CONFIRM_MS / 1_000)
    assert acks.confirm() == 0
    acks.add()
    assert acks.confirm() == CONFIRM_BATCHES
