"""Exactly once with changes of broker and topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Producer

from agent.forward.delivery.session import SessionContext
from agent.forward.delivery.transaction import Intent, Marker
from agent.forward.delivery.transaction_recovery import abort_hanging_transaction
from agent.forward.delivery.transactional import TransactionalProducer
from agent.forward.kafka.client import LastError
from agent.store.port import Batch, Offsets
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import PARTITIONS, KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MODE = "exactly-once"


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", [MODE, pytest.param("at-least-once", marks=pytest.mark.heavy)])
def test_a_topic_that_gets_more_partitions_gets_each_once(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(1_000))

    with forwarding(kafka.settings(mode, topic_metadata_refresh_interval_ms="500"), outbox, gateway):
        wait_until_forwarded(outbox)
        kafka.add_partitions(PARTITIONS + 4)

        def came_to_the_new_ones() -> bool:
            outbox.append(*readings(100, len(outbox.stored())))
            wait_until_forwarded(outbox)
            return any(number >= PARTITIONS for batch in outbox.forwarded() for number in batch.partitions)

        wait_until(came_to_the_new_ones, "a record is in a new partition")

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
def test_ending_what_hangs_aborts_in_each_partition_of_the_batch(kafka: KafkaTopic, gateway: str) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(1))
    label = outbox.stored()[0].label
    batch = Batch(1, 1, "topic", {0: Offsets(0, 0), 2: Offsets(0, 0)})
    context = cast("SessionContext", SimpleNamespace(outbox=outbox, gateway=gateway, topic=kafka.topic))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": gateway})
    producer.init_transactions(60)

    intent = Intent(Marker(label.epoch, 1), None, batch, tuple(outbox.labels(1, 1)))
    transactional = TransactionalProducer(producer, LastError(), None, 9.0)
    abort_hanging_transaction(context, intent, transactional, threading.Event())

    wait_until(lambda: kafka.ends() == {0: 2, 1: 0, 2: 2, 3: 0}, "a record and the end of its transaction in both")
    assert kafka.records() == []


@pytest.mark.guarantee(4)
def test_what_readers_cannot_see_yet_is_not_marked(kafka: KafkaTopic, gateway: str) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(10))
    other = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"other-{gateway}"})
    other.init_transactions(60)

    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until_forwarded(outbox)
        marker = kafka.marker(gateway)
        other.begin_transaction()
        for number in range(PARTITIONS):
            other.produce(kafka.topic, b"open", partition=number)
        other.flush(60)
        outbox.append(*readings(10, 10))
        wait_until(lambda: kafka.marker(gateway) != marker, "the transaction is committed")
        assert outbox.new == 10
        other.abort_transaction(60)
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)


@pytest.mark.guarantee(4)
def test_while_somebody_else_holds_readers_back_a_session_begins_with_nothing_committed(
    kafka: KafkaTopic, gateway: str
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(10))
    other = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"other-{gateway}"})
    other.init_transactions(60)
    other.begin_transaction()
    for number in range(PARTITIONS):
        other.produce(kafka.topic, b"open", partition=number)
    other.flush(60)

    with forwarding(kafka.settings(MODE), outbox, gateway):
        sent = PARTITIONS + 10
        wait_until(lambda: sum(kafka.ends("read_uncommitted").values()) > sent, "a transaction has ended")
        assert kafka.marker(gateway) is None
        assert outbox.new == 10
        other.abort_transaction(60)
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    ours = sum(kafka.ends().values()) - 2 * PARTITIONS
    assert ours >= 20, "the events are there twice, once aborted"


# A restarted broker may report a transaction as committed and leave it open in the topic
# (agent/forward/delivery/transaction_recovery.py).
@pytest.mark.guarantee(4)
@pytest.mark.parametrize(
    "end",
    [
        Broker.kill,
        pytest.param(Broker.stop, marks=pytest.mark.heavy),
        *[pytest.param(Broker.kill, id=f"kill-{n}", marks=pytest.mark.heavy) for n in range(9)],
    ],
)
def test_a_broker_that_goes_and_comes_back_gets_each_once(
    broker: Broker, kafka: KafkaTopic, gateway: str, end: Callable[[Broker], None]
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(5_000))

    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until(lambda: outbox.new < 5_000, "some events are marked")
        end(broker)
        outbox.append(*readings(1_000, 5_000))
        broker.start()
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)
