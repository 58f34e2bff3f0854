"""Assertions about the final state of outbox and topic."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from agent.cli.doctor.finding import Condition
from agent.cli.doctor.kafka import KafkaConnection, check_broker
from agent.config.settings import KafkaSettings
from agent.forward.facts import InDoubtBatches, read_in_doubt
from agent.store.facts import IN_DOUBT
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.events import readings
from tests.agent.forward.running import GATEWAY, forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription

EVENTS = 100


def assert_sent_and_receipted(
    kafka: KafkaTopic, settings: KafkaSettings, gateway: str = GATEWAY
) -> tuple[KafkaConnection, TopicDescription]:
    """Assert that all clients of a mode and of doctor are let in; return what doctor has opened."""
    outbox = MemoryOutbox(*readings(EVENTS))
    forward_all(settings, outbox, gateway)
    if settings.delivery == "at-most-once":  # there an event is released before it is sent
        wait_for_count(lambda: len(kafka.records()), EVENTS, "the events are in the topic")
    else:
        assert_nothing_lost(kafka, outbox)
        kafka.commit(None, kafka.receipt())
        with receipting(settings, outbox, gateway):
            wait_for_count(lambda: len(outbox.forwarded()), 0, "everything has its receipt")
    connection = KafkaConnection.open(settings)
    finding, topic = check_broker(connection)
    assert finding.condition is Condition.FINE, finding
    assert topic is not None
    return connection, topic


def processed(outbox: MemoryOutbox) -> int:
    return sum(batch.last - batch.first + 1 for batch in outbox.processed)


def wait_until_forwarded(outbox: MemoryOutbox) -> None:
    wait_for_count(lambda: outbox.new, 0, "everything is forwarded")


def forward_all(settings: KafkaSettings, outbox: MemoryOutbox, gateway: str = GATEWAY) -> None:
    with forwarding(settings, outbox, gateway):
        wait_until_forwarded(outbox)


def in_doubt(outbox: MemoryOutbox) -> InDoubtBatches:
    return read_in_doubt(outbox.fact(IN_DOUBT))


def unsettled(outbox: MemoryOutbox) -> int:
    """Return how many events wait or are in flight."""
    return outbox.new + in_doubt(outbox).in_flight


def wait_until_settled(outbox: MemoryOutbox) -> None:
    wait_for_count(lambda: unsettled(outbox), 0, "everything is sent, and nothing is in flight")


def assert_nothing_lost(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    """Assert that every event is in the topic, and that its batch has its real place."""
    places: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for record in kafka.records():
        partition, offset = record.partition(), record.offset()
        assert partition is not None
        assert offset is not None
        places[sequence(record)].add((partition, offset))
    covered = 0
    for batch in outbox.forwarded():
        for position in range(batch.first, batch.last + 1):
            covered += 1
            assert any(
                partition in batch.partitions
                and batch.partitions[partition].lowest <= offset <= batch.partitions[partition].highest
                for partition, offset in places[position]
            ), f"{position} is not where its batch says"
    assert covered == len(outbox.stored()) - len(outbox.given_up) == len(places)


def assert_each_once(kafka: KafkaTopic, outbox: MemoryOutbox) -> None:
    """Assert that every event is in the topic exactly once, for a reader of committed records."""
    seen = Counter(sequence(record) for record in kafka.records())
    stored = Counter(event.label.sequence for event in outbox.stored() if event.position not in outbox.given_up)
    lost, doubled = sorted((stored - seen).elements()), sorted((seen - stored).elements())
    assert not lost, f"lost {len(lost)}: {lost[:3]} to {lost[-3:]}"
    assert not doubled, f"doubled {len(doubled)}: {doubled[:3]} to {doubled[-3:]}"
