"""Acks that arrive shortly after one another share a confirmation, which takes more bytes than an event."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from agent.config.settings import ReceiptSettings
from agent.forward.kafka.client import LastError
from agent.forward.kafka.topic import TopicWatch
from agent.forward.modes.confirmation import (
    CONFIRM_BATCHES,
    CONFIRM_MS,
    CONFIRM_MS_MAX,
    Confirmation,
    Confirmed,
    confirm_ms,
)
from agent.forward.modes.in_flight import InFlightBatch, InFlightWindow
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.modes.test_in_flight import delivered
from tests.agent.store.stores import HandClock
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

INTERVAL_MS = 10_000


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
        self.confirmation = Confirmation(self.watch, expected, self.clock, INTERVAL_MS)
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
            if (confirmed := self.confirmation.poll()) is not None:
                found.append(confirmed)
            return bool(found)

        wait_until(is_answered, "the broker's answer")
        return len(self.window.pop_confirmed(found[0].batches))


@pytest.fixture
def acks(kafka: KafkaTopic) -> Acks:
    return Acks(kafka)


@pytest.mark.parametrize(
    ("settings", "expected_ms"),
    [
        (ReceiptSettings(), 10_000),
        (ReceiptSettings(poll_seconds=300), CONFIRM_MS_MAX),
        (ReceiptSettings(poll_seconds=0.3), 100),
        (ReceiptSettings(enabled=False), CONFIRM_MS),
    ],
)
def test_the_interval_follows_from_that_of_the_receipts(settings: ReceiptSettings, expected_ms: int) -> None:
    assert confirm_ms(settings) == expected_ms


@pytest.mark.kafka
def test_the_first_event_is_confirmed_at_once_and_those_of_an_interval_together(acks: Acks) -> None:
    acks.add()
    assert acks.confirm() == 1
    for _ in range(3):
        acks.clock.pass_seconds(INTERVAL_MS / 4_000)
        acks.add()
        assert acks.confirm() == 0
    acks.clock.pass_seconds(INTERVAL_MS / 4_000)
    assert acks.confirm() == 3
    assert acks.watch.requests == 2


@pytest.mark.kafka
def test_a_backlog_does_not_wait_for_the_interval(acks: Acks) -> None:
    acks.add()
    assert acks.confirm() == 1
    acks.clock.pass_seconds(CONFIRM_MS / 1_000)
    acks.add(CONFIRM_BATCHES - 1)
    assert acks.confirm() == 0
    acks.add()
    assert acks.confirm() == CONFIRM_BATCHES
