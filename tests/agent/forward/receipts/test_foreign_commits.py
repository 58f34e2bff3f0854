"""Commits that are no receipts of the pinned table, with a real broker: they hold the receipts, or do not count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.forward.receipts.hold import read_hold
from agent.store.facts import RECEIPTS_HELD, RECEIPTS_TABLE
from tests.agent.forward.broker import KafkaTopic
from tests.agent.forward.receipts.polling import EVENTS, CountingOutbox, processed, wait_for_polls
from tests.agent.forward.running import receipting
from tests.support.waiting import wait_for_count, wait_until

BEYOND = 10**6
"""An offset above the end of each log."""


@pytest.mark.guarantee(4)
@pytest.mark.kafka
@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        (lambda kafka: kafka.commit(None, ""), "a foreign consumer"),
        (lambda kafka: kafka.commit(None, kafka.receipt("wrong").replace("wrong", "wrong,")), "in another form"),
        (lambda kafka: kafka.consume_as_anybody(), "a foreign consumer"),
        (lambda kafka: kafka.commit(BEYOND, kafka.receipt("wrong")), "is beyond the log's end"),
        (lambda kafka: kafka.commit(None, kafka.receipt("wrong", first=BEYOND)), "begins above the group's own offset"),
        (
            lambda kafka: kafka.commit(None, kafka.receipt("wrong"), leader_epochs=dict.fromkeys(range(4), 9)),
            "is of leader epoch 9, but epoch 0 answers",
        ),
    ],
)
def test_a_commit_that_is_no_receipt_holds_and_pins_nothing_until_a_true_one_stands_there(
    kafka: KafkaTopic,
    outbox: CountingOutbox,
    caplog: pytest.LogCaptureFixture,
    commit: Callable[[KafkaTopic], None],
    reason: str,
) -> None:
    commit(kafka)

    with receipting(kafka.settings(), outbox):
        wait_until(lambda: bool(outbox.fact(RECEIPTS_HELD)), "it is held")
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        assert caplog.text.count("receipts=held") == 1
        hold = read_hold(outbox.fact(RECEIPTS_HELD))
        assert hold is not None
        assert reason in hold.reason
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
        wait_until(lambda: read_hold(outbox.fact(RECEIPTS_HELD)) is None, "commands beside the agent read it")

    assert "receipts=flowing" in caplog.text
    assert outbox.fact(RECEIPTS_TABLE) == "table-1"


@pytest.mark.kafka
def test_offsets_of_an_aborted_transaction_are_no_receipt(kafka: KafkaTopic, outbox: CountingOutbox) -> None:
    kafka.commit(0, kafka.receipt())
    kafka.abort_commit(kafka.receipt())

    with receipting(kafka.settings(), outbox):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.commit(None, kafka.receipt())
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")


@pytest.mark.guarantee(4)
@pytest.mark.kafka
def test_where_any_commit_counts_what_a_foreign_consumer_has_read_is_processed_and_no_more(
    kafka: KafkaTopic, outbox: CountingOutbox
) -> None:
    with receipting(kafka.settings(), outbox, any_commit=True):
        wait_for_polls(outbox)
        assert processed(outbox) == 0
        kafka.consume_as_anybody()
        wait_for_count(lambda: processed(outbox), EVENTS, "all are processed")
    assert outbox.fact(RECEIPTS_TABLE) is None
