"""Transactions that a broker has reported as committed, and whose records no reader of committed records receives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from agent.forward.kafka.client import raw_metadata
from agent.forward.kafka.health import REACHABLE
from agent.forward.modes.transaction import GROUP_PREFIX
from agent.forward.modes.transactional import MARKER_PARTITION
from agent.telemetry.links import LinkName
from tests.agent.forward.broker import LinkedTopic, sequence
from tests.agent.forward.checks import assert_each_once, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.modes.answer_link import AnswerLink
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MODE = "exactly-once"
EVENTS = 10
SECONDS_MAX = 60


@pytest.fixture
def kafka(linked: LinkedTopic) -> LinkedTopic:
    return linked


@contextmanager
def marker_kept(kafka: LinkedTopic, gateway: str) -> Iterator[None]:
    """Write the marker at the end of the block that was there at its beginning."""
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP_PREFIX + gateway}
    with closing(Consumer({**config, "enable.auto.commit": False})) as client:
        place = TopicPartition(kafka.topic, MARKER_PARTITION)
        (earlier,) = client.committed([place], timeout=SECONDS_MAX)
        assert earlier.offset >= 0
        yield
        (later,) = client.committed([place], timeout=SECONDS_MAX)
        assert raw_metadata(later) != raw_metadata(earlier)
        client.commit(offsets=[earlier], asynchronous=False)


@pytest.mark.heavy
@pytest.mark.guarantee(4)
@pytest.mark.parametrize("is_first", [True, False], ids=["the first of its run", "the first of a renewed epoch"])
def test_after_a_transaction_that_lost_its_offsets_no_earlier_marker_is_taken_for_a_clone(
    link: AnswerLink, kafka: LinkedTopic, gateway: str, is_first: bool, outbox: MemoryOutbox
) -> None:
    def abort() -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": gateway})
        producer.init_transactions(SECONDS_MAX)

    outbox.append(*readings(EVENTS))
    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until_forwarded(outbox)
    outbox.reopen("b" * 16)
    with forwarding(kafka.settings(MODE), outbox, gateway) as links:
        if not is_first:
            outbox.append(*readings(EVENTS, EVENTS))
            wait_until_forwarded(outbox)
            outbox.reopen("c" * 16)
        with marker_kept(kafka, gateway):
            outbox.append(*readings(EVENTS, 2 * EVENTS))
            wait_until_forwarded(outbox)
        link.intercept_commit(abort, carried_out=False)
        outbox.append(*readings(EVENTS, 3 * EVENTS))
        wait_until(link.caught.is_set, "the broker reports a commit")
        wait_until_forwarded(outbox)
        assert links.state(LinkName.KAFKA) == REACHABLE

    assert_each_once(kafka, outbox)


@pytest.mark.guarantee(4)
def test_records_that_retention_deletes_before_they_are_read_back_are_sent_again(
    link: AnswerLink, kafka: LinkedTopic, gateway: str, outbox: MemoryOutbox
) -> None:
    def delete_records() -> None:
        wait_until(lambda: kafka.ends() == kafka.ends("read_uncommitted"), "the transaction has ended")
        kafka.delete_before(kafka.ends())

    outbox.append(*readings(EVENTS))
    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until_forwarded(outbox)
        link.intercept_commit(delete_records, carried_out=True)
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until_forwarded(outbox)

    assert link.caught.is_set()
    assert sorted(sequence(record) for record in kafka.records()) == list(range(EVENTS + 1, 2 * EVENTS + 1))
