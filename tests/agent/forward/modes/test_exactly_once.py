"""Exactly once into the topic: a reader of committed records reads each label once, whichever process is killed."""

import threading
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast
from weakref import WeakSet

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from agent.forward.kafka.client import LastError
from agent.forward.kafka.health import CLONED, REACHABLE
from agent.forward.modes.session import SessionContext
from agent.forward.modes.transaction import GROUP_PREFIX, Intent, Marker, read_intent
from agent.forward.modes.transactional import MARKER_PARTITION, TransactionalProducer, abort_hanging_transaction
from agent.store.facts import FORWARDER_STOPPED, TRANSACTION_INTENT, TRANSACTION_SETTLED
from agent.store.port import Batch, Offsets, OutboxError
from agent.telemetry.links import LinkName
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import PARTITIONS, KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, forward_all, wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.running import DeathError, forwarding, run_until_death
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

MODE = "exactly-once"


class MortalOutbox(MemoryOutbox):
    """Ends on command before a mark."""

    dies = True

    def mark_forwarded(self, batch: Batch, note: tuple[str, str] | None = None) -> None:
        if self.dies:
            self.dies = False
            raise DeathError
        super().mark_forwarded(batch, note)


def test_what_was_given_up_between_the_commit_and_the_mark_is_not_marked(kafka: KafkaTopic, gateway: str) -> None:
    outbox = MortalOutbox(*readings(10))
    run_until_death(kafka.settings(MODE), outbox, gateway)
    outbox.give_up(4, "dropped")

    forward_all(kafka.settings(MODE), outbox, gateway)

    assert [(batch.first, batch.last) for batch in outbox.forwarded()] == [(1, 3), (5, 10)]
    assert len(kafka.records()) == 10


@pytest.mark.guarantee(4)
def test_what_has_other_labels_than_the_transaction_is_sent_and_the_rest_is_marked(
    kafka: KafkaTopic, gateway: str
) -> None:
    outbox = MortalOutbox(*readings(10))
    run_until_death(kafka.settings(MODE), outbox, gateway)
    outbox.lose_epoch(4, "f" * 16)

    forward_all(kafka.settings(MODE), outbox, gateway)

    assert sorted((batch.first, batch.last) for batch in outbox.forwarded()) == [(1, 4), (5, 10)]
    assert len(kafka.records()) == 14


@pytest.mark.guarantee(4)
def test_after_a_salvage_that_has_lost_the_intent_no_number_is_used_again(kafka: KafkaTopic, gateway: str) -> None:
    outbox = MortalOutbox(*readings(10))
    outbox.set_fact(TRANSACTION_SETTLED, "5")
    run_until_death(kafka.settings(MODE), outbox, gateway)

    forward_all(kafka.settings(MODE), outbox, gateway)

    assert_each_once(kafka, outbox)


@pytest.mark.guarantee(4)
def test_a_clone_stops_the_one_that_it_has_fenced_and_goes_on_itself(
    kafka: KafkaTopic, gateway: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, clone = MemoryOutbox(*readings(10)), MemoryOutbox()
    clients = follow_clients(monkeypatch)

    with forwarding(kafka.settings(MODE), original, gateway) as links:
        wait_until_forwarded(original)
        clone.reopen("c" * 16)
        clone.append(*readings(10))
        with forwarding(kafka.settings(MODE), clone, gateway):
            wait_until_forwarded(clone)
            original.append(*readings(10, 10))
            wait_until(lambda: links.state(LinkName.KAFKA) == CLONED, "the original stops")
            clone.append(*readings(10, 10))
            wait_until_forwarded(clone)
            assert clients
        wait_until(lambda: not clients, "the one that has stopped keeps no client", seconds=10)
        assert original.new == 10
        assert "configure another gateway.id for one of the two" in (original.fact(FORWARDER_STOPPED) or "")
    assert caplog.text.count("kafka=cloned") == 1

    forward_all(kafka.settings(MODE), original, gateway)
    assert original.fact(FORWARDER_STOPPED) == ""


@pytest.mark.guarantee(3)
def test_an_old_marker_of_its_own_which_a_loading_coordinator_returns_is_no_clone(
    kafka: KafkaTopic, gateway: str
) -> None:
    outbox, intents = MemoryOutbox(), []
    for start, epoch in ((0, "a" * 16), (10, "b" * 16)):
        outbox.reopen(epoch)
        outbox.append(*readings(10, start))
        forward_all(kafka.settings(MODE), outbox, gateway)
        intents.append(read_intent(outbox.fact(TRANSACTION_INTENT)))
    old = intents[0]
    assert old is not None

    outbox.reopen("c" * 16)
    with forwarding(kafka.settings(MODE), outbox, gateway) as links:
        outbox.append(*readings(10, 20))
        wait_until_forwarded(outbox)
        with closing(
            Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": GROUP_PREFIX + gateway})
        ) as late:
            late.commit(
                offsets=[TopicPartition(kafka.topic, MARKER_PARTITION, old.marker.number, str(old.marker))],
                asynchronous=False,
            )
        Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": gateway}).init_transactions(60)
        outbox.append(*readings(10, 30))
        wait_until_forwarded(outbox)
        assert links.state(LinkName.KAFKA) == REACHABLE


def test_a_store_that_is_older_than_the_marker_says_so_and_goes_on(
    kafka: KafkaTopic, gateway: str, caplog: pytest.LogCaptureFixture
) -> None:
    newer, backup = MemoryOutbox(*readings(10)), MemoryOutbox()
    forward_all(kafka.settings(MODE), newer, gateway)

    backup.append(*readings(10))  # in the same epoch
    backup.reopen("b" * 16)
    forward_all(kafka.settings(MODE), backup, gateway)

    assert "marker=foreign" in caplog.text


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("mode", ["exactly-once", "at-most-once"])
def test_a_disk_that_refuses_ends_nothing_and_all_goes_on_when_it_takes_again(
    kafka: KafkaTopic, gateway: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    class FullOutbox(MemoryOutbox):
        full = True

        def set_fact(self, name: str, value: str) -> None:
            self._refuse()
            super().set_fact(name, value)

        def release(self, first: int, last: int, note: tuple[str, str]) -> bool:
            self._refuse()
            return super().release(first, last, note)

        def _refuse(self) -> None:
            if self.full:
                raise OutboxError("the store fails: database or disk is full")

    outbox = FullOutbox(*readings(100))
    with forwarding(kafka.settings(mode), outbox, gateway):
        wait_until(lambda: "disk is full" in caplog.text, "the refusal is logged")
        outbox.full = False
        wait_until_forwarded(outbox)
    assert_each_once(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", [MODE, pytest.param("at-least-once", marks=pytest.mark.heavy)])
def test_a_topic_that_gets_more_partitions_gets_each_once(kafka: KafkaTopic, gateway: str, mode: str) -> None:
    outbox = MemoryOutbox(*readings(1_000))

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
    if mode == MODE:
        intent = read_intent(outbox.fact(TRANSACTION_INTENT))
        assert intent is not None
        assert outbox.fact(TRANSACTION_SETTLED) == str(intent.marker.number)


@pytest.mark.guarantee(4)
def test_ending_what_hangs_aborts_in_each_partition_of_the_batch(kafka: KafkaTopic, gateway: str) -> None:
    outbox = MemoryOutbox(*readings(1))
    label = outbox.stored()[0].label
    batch = Batch(1, 1, "topic", {0: Offsets(0, 0), 2: Offsets(0, 0)})
    context = cast("SessionContext", SimpleNamespace(outbox=outbox, gateway=gateway, topic=kafka.topic, sign=None))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": gateway})
    producer.init_transactions(60)

    intent = Intent(Marker(label.epoch, 1), None, batch, tuple(outbox.labels(1, 1)))
    transactional = TransactionalProducer(producer, LastError(), None, 9.0)
    abort_hanging_transaction(context, intent, transactional, threading.Event())

    wait_until(lambda: kafka.ends() == {0: 2, 1: 0, 2: 2, 3: 0}, "a record and the end of its transaction in both")
    assert kafka.records() == []


# A restarted broker may report a transaction as committed and leave it open in the topic
# (agent/forward/modes/transactional.py).
@pytest.mark.guarantee(4)
@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
@pytest.mark.heavy
def test_a_broker_that_goes_and_comes_back_gets_each_once(
    broker: Broker, kafka: KafkaTopic, gateway: str, end: Callable[[Broker], None]
) -> None:
    outbox = MemoryOutbox(*readings(5_000))

    with forwarding(kafka.settings(MODE), outbox, gateway):
        wait_until(lambda: outbox.new < 5_000, "some events are marked")
        end(broker)
        outbox.append(*readings(1_000, 5_000))
        broker.start()
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)


def follow_clients(monkeypatch: pytest.MonkeyPatch) -> WeakSet[object]:
    """Return the set of the clients that sessions open from now on, each as long as it is open."""
    clients: WeakSet[object] = WeakSet()

    def followed(kind: type) -> type:
        class Client(kind):  # type: ignore[misc]  # mypy wants a base class that it knows
            def __init__(self, config: dict[str, Any]) -> None:
                super().__init__(config)
                clients.add(self)

        return Client

    for mode in ("at_least_once", "at_most_once", "exactly_once"):
        monkeypatch.setattr(f"agent.forward.modes.{mode}.Producer", followed(Producer))
    monkeypatch.setattr("agent.forward.kafka.client.Consumer", followed(Consumer))
    monkeypatch.setattr("agent.forward.kafka.client.AdminClient", followed(AdminClient))
    return clients
