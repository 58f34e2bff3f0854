"""Commits that are no receipts of the pinned table, with a real broker: they hold the receipts, or do not count."""

from __future__ import annotations

import pytest

from agent.forward.receipts.hold import read_hold
from agent.store.facts import RECEIPTS_HELD, RECEIPTS_TABLE
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.receipts.polling import EVENTS, CountingOutbox, processed, wait_for_polls
from tests.agent.forward.running import forwarding, receipting
from tests.support.waiting import wait_for_count, wait_until


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_a_foreign_commit_holds_until_a_true_receipt_stands_there(
    kafka: KafkaTopic, outbox: CountingOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.commit(None, "")

    with receipting(kafka.settings(), outbox):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        assert caplog.text.count("receipts=held") == 1
        hold = read_hold(outbox.fact(RECEIPTS_HELD))
        assert hold is not None
        assert "foreign consumer" in hold.reason
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
        wait_until(lambda: read_hold(outbox.fact(RECEIPTS_HELD)) is None, "commands beside the agent read it")

    assert "receipts=flowing" in caplog.text


@pytest.mark.kafka
def test_receipts_of_the_topic_before_it_was_recreated_hold(
    kafka: KafkaTopic, outbox: CountingOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    of_the_old = kafka.receipt("table-0")
    kafka.delete_topic()
    anew = kafka.create_topic()

    with receipting(kafka.settings(), outbox), forwarding(kafka.settings(), outbox):
        wait_until(lambda: {batch.topic_id for batch in outbox.forwarded()} == {anew}, "all are sent again")
        kafka.commit(None, of_the_old)
        wait_until(lambda: "receipts=held" in caplog.text, "it is held")
        assert processed(outbox) == 0
        assert outbox.fact(RECEIPTS_TABLE) is None
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")


@pytest.mark.kafka
def test_a_console_consumer_in_the_group_gives_no_receipt(
    kafka: KafkaTopic, outbox: CountingOutbox, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.consume_as_anybody()

    with receipting(kafka.settings(), outbox):
        wait_until(lambda: "receipts=held" in caplog.text, "it is held")

    assert processed(outbox) == 0


@pytest.mark.kafka
def test_offsets_of_an_aborted_transaction_are_no_receipt(kafka: KafkaTopic, outbox: CountingOutbox) -> None:
    kafka.commit(0, kafka.receipt())
    kafka.abort_commit(kafka.receipt())

    with receipting(kafka.settings(), outbox):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
