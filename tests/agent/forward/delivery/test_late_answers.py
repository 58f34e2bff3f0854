"""A broker's answers that arrive after the client's timeout, or never."""

from __future__ import annotations

from uuid import uuid4

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.delivery.in_doubt import InDoubtBatches
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import assert_each_once, assert_nothing_lost, wait_until_forwarded
from tests.agent.forward.delivery.answer_link import AnswerLink, Request
from tests.agent.forward.delivery.test_at_most_once import in_doubt, unsettled
from tests.agent.forward.events import readings
from tests.agent.forward.running import forwarding
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until

pytestmark = pytest.mark.kafka

LATER = 100
EXPIRY_MS, SOCKET_MS = "1500", "10000"
"""An event expires while its connection stays open, with the answer outstanding."""
TRANSACTIONAL = [
    Request.PRODUCE,
    Request.INIT_PRODUCER_ID,
    Request.ADD_PARTITIONS_TO_TXN,
    Request.TXN_OFFSET_COMMIT,
    Request.END_TXN,
    Request.LIST_OFFSETS,
]


@pytest.fixture
def kafka(linked: tuple[Broker, int, int]) -> KafkaTopic:
    side = KafkaTopic(linked[0].bootstrap_servers, f"late.{uuid4().hex}")
    side.create_topic()
    return side


def settings(linked: tuple[Broker, int, int], kafka: KafkaTopic, mode: str, **properties: str) -> KafkaSettings:
    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    return KafkaSettings(f"127.0.0.1:{linked[2]}", kafka.topic, mode, dotted)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "socket_ms",
    [
        pytest.param(SOCKET_MS, id="on the same connection"),
        pytest.param("1000", id="on one that was given up", marks=pytest.mark.heavy),
    ],
)
def test_an_ack_that_comes_after_its_events_have_expired_is_none_and_they_are_sent_again(
    linked: tuple[Broker, int, int],
    link: AnswerLink,
    kafka: KafkaTopic,
    socket_ms: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(LATER))
    chosen = settings(linked, kafka, "at-least-once", message_timeout_ms=EXPIRY_MS, socket_timeout_ms=socket_ms)

    with forwarding(chosen, outbox, silence_ms=60_000):
        wait_until_forwarded(outbox)
        link.hold(Request.PRODUCE)
        outbox.append(*readings(LATER, LATER))
        wait_until(lambda: "kafka=failing" in caplog.text, "the events expire")
        assert sum(kafka.ends().values()) > LATER, "the broker has taken some: no more are sent than five unanswered"
        assert (outbox.new, outbox.given_up) == (LATER, {})
        link.release()
        wait_until_forwarded(outbox)

    assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
def test_leaders_that_tell_their_epochs_too_late_are_said_and_nothing_is_marked_meanwhile(
    linked: tuple[Broker, int, int], link: AnswerLink, kafka: KafkaTopic, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(LATER))

    with forwarding(settings(linked, kafka, "at-least-once"), outbox):
        wait_until_forwarded(outbox)
        link.hold(Request.LIST_OFFSETS)
        outbox.append(*readings(LATER, LATER))
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == LATER
        link.release()
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
@pytest.mark.heavy
@pytest.mark.parametrize("kind", TRANSACTIONAL, ids=lambda kind: kind.name)
def test_however_late_an_answer_within_a_transaction_is_each_event_is_there_once(
    linked: tuple[Broker, int, int],
    link: AnswerLink,
    kafka: KafkaTopic,
    kind: Request,
    caplog: pytest.LogCaptureFixture,
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(LATER))

    with forwarding(settings(linked, kafka, "exactly-once"), outbox, f"gw-{kafka.topic}", silence_ms=60_000):
        if kind is not Request.INIT_PRODUCER_ID:
            wait_until_forwarded(outbox)
            outbox.append(*readings(LATER, LATER))
        link.hold(kind)
        outbox.append(*readings(LATER, 2 * LATER))
        wait_until(
            lambda: "kafka=failing" in caplog.text or "kafka=unreachable" in caplog.text, "the failure is logged"
        )
        assert link.caught.is_set()
        assert outbox.given_up == {}
        link.release()
        wait_until_forwarded(outbox)

    assert_each_once(kafka, outbox)
    assert_nothing_lost(kafka, outbox)


@pytest.mark.guarantee(4)
def test_at_most_once_sends_nothing_while_the_broker_does_not_answer_in_time(
    linked: tuple[Broker, int, int], link: AnswerLink, kafka: KafkaTopic, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = MemoryOutbox()
    outbox.append(*readings(LATER))

    with forwarding(settings(linked, kafka, "at-most-once"), outbox):
        wait_for_count(lambda: unsettled(outbox), 0, "everything has arrived")
        link.hold(Request.METADATA)
        outbox.append(*readings(LATER, LATER))
        wait_until(lambda: "kafka=unreachable" in caplog.text, "the state is logged")
        assert outbox.new == LATER
        link.release()
        wait_for_count(lambda: unsettled(outbox), 0, "the rest has arrived")
        assert in_doubt(outbox) == InDoubtBatches()

    assert_each_once(kafka, outbox)
