"""Receipts with a real broker: the job's commits count, and no other ones."""

from __future__ import annotations

import socket

import pytest

from agent.config.settings import KafkaSettings
from agent.forward.kafka.health import FAILING, UNREACHABLE
from agent.forward.receipts.poller import FLOWING
from agent.store.facts import RECEIPTS_TABLE
from agent.store.port import Batch, Offsets, OutboxError
from agent.telemetry.links import LinkName
from simulators.services.kafka.broker import Broker
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.checks import wait_until_forwarded
from tests.agent.forward.events import readings
from tests.agent.forward.receipts.polling import EVENTS, CountingOutbox, processed, wait_for_polls
from tests.agent.forward.running import forwarding, receipting
from tests.support.memory_outbox import MemoryOutbox
from tests.support.waiting import wait_for_count, wait_until


@pytest.mark.kafka
def test_a_true_receipt_counts_and_pins_its_table(
    kafka: KafkaTopic, outbox: CountingOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.is_full = True
    with receipting(kafka.settings(), outbox):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.commit(None, kafka.receipt())
        wait_until(lambda: "receipts=held" in caplog.text, "the table cannot be pinned")
        wait_for_polls(outbox)
        assert (processed(outbox), caplog.text.count("receipts=held")) == (0, 1)
        outbox.is_full = False
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")

    assert outbox.fact(RECEIPTS_TABLE) == "table-1"


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_what_a_replaced_topic_had_is_sent_again_and_receipted_there(kafka: KafkaTopic, outbox: CountingOutbox) -> None:
    kafka.delete_topic()
    anew = kafka.create_topic()

    with receipting(kafka.settings(), outbox), forwarding(kafka.settings(), outbox):
        wait_until(lambda: {batch.topic_id for batch in outbox.forwarded()} == {anew}, "all are sent again")
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")


@pytest.mark.kafka
@pytest.mark.parametrize("grows_again", [pytest.param(False, marks=pytest.mark.heavy), True])
def test_records_that_a_broker_has_lost_are_sent_again_whatever_stands_in_their_place(
    broker: Broker, kafka: KafkaTopic, outbox: CountingOutbox, grows_again: bool
) -> None:
    broker.kill()
    for log in broker.data_folder.glob(f"{kafka.topic}-*/*.log"):
        log.write_bytes(b"")
    broker.start()
    if grows_again:
        other = MemoryOutbox()
        other.append(*readings(EVENTS * 2))
        with forwarding(kafka.settings(), other, "gw-2"):
            wait_until_forwarded(other)
    kafka.commit(None, kafka.receipt())

    with receipting(kafka.settings(), outbox):
        wait_for_count(lambda: outbox.new, EVENTS, "all are returned")

    assert processed(outbox) == 0


@pytest.mark.kafka
@pytest.mark.parametrize("is_given_up", [False, True])
def test_after_a_poll_that_nobody_answered_another_client_asks(
    broker: Broker, kafka: KafkaTopic, outbox: CountingOutbox, monkeypatch: pytest.MonkeyPatch, *, is_given_up: bool
) -> None:
    for module in ("receipts.group_offsets", "kafka.topic"):
        monkeypatch.setattr(f"agent.forward.{module}.REQUEST_SECONDS_MAX", 1.0)

    with receipting(kafka.settings(), outbox) as links:
        wait_for_polls(outbox)
        broker.kill()
        wait_until(lambda: links.state(LinkName.RECEIPTS) == UNREACHABLE, "nobody answers")
        if is_given_up:
            outbox.mark_processed(outbox.forwarded())
        broker.start()
        if not is_given_up:
            kafka.commit(None, kafka.receipt())
        wait_until(lambda: links.state(LinkName.RECEIPTS) == FLOWING, "the broker answers")
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")


def test_it_asks_only_while_something_is_outstanding() -> None:
    nobody = KafkaSettings("127.0.0.1:1")
    outbox = CountingOutbox()

    with receipting(nobody, outbox):
        wait_for_polls(outbox)  # a poll that sends requests would hang, since no broker answers
        outbox.append(*readings(1))
        outbox.mark_forwarded(Batch(1, 1, "topic-1", {0: Offsets(0, 0)}))
        before = outbox.polls
        wait_until(lambda: outbox.polls > before, "a poll that asks")

    assert outbox.polls <= before + 2


class UnreadableFacts(CountingOutbox):
    """Cannot read a fact, as on a failing disk."""

    def fact(self, name: str) -> str | None:
        raise OutboxError("the store fails: disk I/O error")


def test_facts_that_cannot_be_read_do_not_end_the_asking() -> None:
    outbox = UnreadableFacts()

    with receipting(KafkaSettings("127.0.0.1:1"), outbox):
        wait_for_polls(outbox)


def test_facts_that_cannot_be_read_do_not_end_the_forwarding() -> None:
    outbox = UnreadableFacts()

    with socket.create_server(("127.0.0.1", 0)) as somebody:
        settings = KafkaSettings(f"127.0.0.1:{somebody.getsockname()[1]}")
        with forwarding(settings, outbox) as links:
            wait_until(lambda: links.state(LinkName.KAFKA) == FAILING, "it is logged")
            assert links.reports()[LinkName.KAFKA].reason == "the store fails: disk I/O error"


def test_without_receipts_forwarded_is_done() -> None:
    outbox = CountingOutbox()
    outbox.append(*readings(1))
    outbox.mark_forwarded(Batch(1, 1, "topic-1", {}))

    with receipting(KafkaSettings("127.0.0.1:1"), outbox, enabled=False):
        wait_for_count(lambda: processed(outbox), 1, "it is processed")
