"""Brokers that have expired the producer of an idle gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from agent.config.settings import KafkaSettings
from agent.forward.delivery.transaction import GROUP_PREFIX
from simulators.services import ports
from simulators.services.kafka.broker import Broker, Listener
from tests.agent.forward.broker import KafkaTopic, sequence
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost
from tests.agent.forward.delivery.answer_link import AnswerLink
from tests.agent.forward.delivery.test_at_most_once import unsettled
from tests.agent.forward.events import readings
from tests.agent.forward.kafka.producers import remembered, transactional_ids
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

pytestmark = pytest.mark.kafka

MODES = ("at-least-once", "exactly-once", "at-most-once")
SOON = {
    "producer.id.expiration.ms": 500,
    "producer.id.expiration.check.interval.ms": 100,
    "transactional.id.expiration.ms": 2_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}
"""Kafka's defaults are a day, ten minutes, a week and an hour."""
EVENTS = 50
UNKNOWN_PRODUCER_ID = 59


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int, int]]:
    """Yield a broker that expires producers soon, the port where it listens, and that of the link to it."""
    listens, says = ports.free(2)
    link = Listener("PLAINTEXT", listens, says)
    with Broker(tmp_path_factory.mktemp("forgetful"), link, properties=SOON) as broker:
        yield broker, listens, says


@pytest.fixture
def kafka(forgetful: tuple[Broker, int, int]) -> KafkaTopic:
    side = KafkaTopic(forgetful[0].bootstrap_servers, f"forgotten.{uuid4().hex}")
    side.partitions = 1
    side.create_topic()
    return side


def wait_until_sent(outbox: MemoryOutbox) -> None:
    wait_for_count(lambda: unsettled(outbox), 0, "everything is sent")


def assert_kept(kafka: KafkaTopic, outbox: MemoryOutbox, mode: str) -> None:
    """Assert that each event is there; once, since none was in flight when the producer expired."""
    assert_each_once(kafka, outbox)
    if mode != "at-most-once":
        assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("mode", MODES)
def test_a_producer_that_the_broker_has_forgotten_goes_on(
    kafka: KafkaTopic, gateway: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()

    with forwarding(kafka.settings(mode), outbox, gateway):
        for count in range(1, 4):
            outbox.append(*readings(EVENTS, (count - 1) * EVENTS))
            wait_until_sent(outbox)
            wait_until(lambda: not remembered(kafka.bootstrap_servers, kafka.topic), "the producer is forgotten")

    assert_kept(kafka, outbox, mode)
    assert "kafka=failing" not in caplog.text


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_a_transactional_id_that_has_expired_is_taken_anew_and_it_is_said(
    kafka: KafkaTopic, gateway: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(EVENTS))

    with forwarding(kafka.settings("exactly-once"), outbox, gateway):
        wait_until_sent(outbox)
        wait_until(lambda: gateway.encode() not in transactional_ids(kafka.bootstrap_servers), "the id is forgotten")
        kafka.forget_offsets(GROUP_PREFIX + gateway)  # also after a week: the latest transaction's marker
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until_sent(outbox)

    assert_kept(kafka, outbox, "exactly-once")
    assert "kafka=failing" in caplog.text
    reasons = ("not currently assigned to its transactional id", "Erroneous state")  # the cause, or its effect
    assert any(reason in caplog.text for reason in reasons)


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES)
def test_records_that_are_deleted_below_an_open_producer_change_nothing(
    kafka: KafkaTopic, gateway: str, mode: str
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(EVENTS))

    with forwarding(kafka.settings(mode), outbox, gateway):
        wait_until_sent(outbox)
        delete_records(kafka)
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until_sent(outbox)

    assert sorted(sequence(record) for record in kafka.records()) == list(range(EVENTS + 1, 2 * EVENTS + 1))


def delete_records(kafka: KafkaTopic) -> None:
    """Delete all records up to the end, as retention does."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    all_of_it = TopicPartition(kafka.topic, 0, kafka.ends()[0])
    for future in admin.delete_records([all_of_it]).values():
        future.result(60)


@pytest.mark.guarantee(4)
@pytest.mark.parametrize("mode", MODES[:2])
def test_a_broker_that_says_that_it_knows_no_such_producer_gets_everything(
    forgetful: tuple[Broker, int, int], kafka: KafkaTopic, gateway: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers before Kafka 2.5 answer like this; this broker has appended the records nevertheless, which is worse."""
    _, listens, says = forgetful
    outbox = MemoryOutbox()
    outbox.append(*readings(EVENTS))

    with (
        AnswerLink(says, listens) as link,
        forwarding(KafkaSettings(f"127.0.0.1:{says}", kafka.topic, mode), outbox, gateway),
    ):
        wait_until_sent(outbox)
        link.change_produced(with_error(kafka.topic, UNKNOWN_PRODUCER_ID))
        outbox.append(*readings(EVENTS, EVENTS))
        wait_until_sent(outbox)
        assert link.caught.is_set()

    assert_nothing_lost(kafka, outbox)
    if mode == "exactly-once":
        assert_each_once(kafka, outbox)
        assert "reason='unknown producer id'" in "\n".join(caplog.messages)


def with_error(topic: str, code: int) -> Callable[[bytes], bytes]:
    """Return a function that sets an error in an answer to records of one partition (Produce, from version 9 on)."""

    def change(answer: bytes) -> bytes:
        name = topic.encode()
        at = answer.index(name) + len(name) + 1 + 4  # after the number of partitions and the first one's number
        assert answer[at : at + 2] == b"\x00\x00"
        return answer[:at] + code.to_bytes(2) + answer[at + 2 :]

    return change
