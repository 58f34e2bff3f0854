"""The rules of the receipts, as a table of cases and as properties; and when they are polled."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate, islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.forward.receipts.poller import JITTER, pauses
from agent.forward.receipts.rules import PartitionView, Rules, Verdict, View, choose_table, decide, is_taken, objection
from agent.forward.receipts.truncation import RESEND_SECONDS, Resends
from agent.store.port import Batch, Offsets
from contract.receipt import Receipt

OURS = Receipt("table", 0, "topic-1")
EPOCH = 3
BATCH = Batch(1, 9, "topic-1", {0: Offsets(10, 14, EPOCH), 1: Offsets(20, 23, EPOCH)})
PINNED, ANY = Rules("table"), Rules("table", any_commit=True)
SENT_AGAIN = Rules("table", first_max={0: 11})


def seen(committed: int | None, receipt: Receipt | None, log_end: int | None) -> PartitionView:
    """Return a partition of which table and broker have the batch's leader epoch only."""
    return PartitionView(committed, receipt, log_end, EPOCH, EPOCH)


def read_under(epoch: int, committed: int, receipt: Receipt | None = OURS) -> PartitionView:
    """Return a partition that a later leader leads, and that the table has read as it was in a leader epoch."""
    return PartitionView(committed, receipt, 20, EPOCH + 1, epoch)


def of_no_epoch(receipt: Receipt | None) -> PartitionView:
    """Return a partition whose commit states no leader epoch."""
    return PartitionView(15, receipt, 15, EPOCH)


def led_by_the_past(committed: int, receipt: Receipt | None, log_end: int) -> PartitionView:
    """Return a partition that a leader from before the batch's leads again."""
    return PartitionView(committed, receipt, log_end, EPOCH - 1, EPOCH)


DONE = seen(24, OURS, 30)


def view(first: PartitionView, second: PartitionView = DONE, topic_id: str = "topic-1") -> View:
    return View(topic_id, {0: first, 1: second})


def receipt(table: str, first: int) -> Receipt:
    return Receipt(table, first, "topic-1")


CASES = [
    ("all below committed", view(seen(15, OURS, 15)), PINNED, Verdict.PROCESSED),
    ("the highest is the next to be read", view(seen(14, OURS, 15)), PINNED, Verdict.WAIT),
    ("the group has committed nothing yet", view(seen(None, None, 15)), PINNED, Verdict.WAIT),
    ("the effects of what follows fail", view(seen(14, replace(OURS, failing_since=1), 15)), PINNED, Verdict.HOLD),
    ("effects fail, above us", view(seen(15, replace(OURS, failing_since=1), 15)), PINNED, Verdict.PROCESSED),
    ("offsets went back", view(seen(3, OURS, 15)), PINNED, Verdict.WAIT),
    ("first is our lowest", view(seen(15, receipt("table", 10), 15)), PINNED, Verdict.PROCESSED),
    ("first is above our lowest", view(seen(15, receipt("table", 11), 15)), PINNED, Verdict.RETURN),
    ("another topic's receipt", view(seen(15, Receipt("table", 0, "topic-2"), 15)), PINNED, Verdict.HOLD),
    ("a foreign commit", view(seen(99, None, 99)), PINNED, Verdict.HOLD),
    ("a foreign commit that counts", view(seen(99, None, 99)), ANY, Verdict.PROCESSED),
    ("one that counts, but not yet", view(seen(14, None, 99)), ANY, Verdict.WAIT),
    ("another table", view(seen(99, receipt("other", 0), 99)), PINNED, Verdict.HOLD),
    ("another table where any commit counts", view(seen(99, receipt("other", 0), 99)), ANY, Verdict.HOLD),
    ("another table that starts above us", view(seen(99, receipt("other", 50), 99)), PINNED, Verdict.HOLD),
    ("an offset beyond the log's end", view(seen(31, OURS, 30)), PINNED, Verdict.HOLD),
    ("one beyond it where any commit counts", view(seen(31, None, 30)), ANY, Verdict.HOLD),
    ("a first above the offset itself", view(seen(3, receipt("table", 4), 30)), PINNED, Verdict.HOLD),
    ("a table that begins at the end", view(seen(30, receipt("table", 30), 30)), PINNED, Verdict.RETURN),
    ("no leader epoch", view(of_no_epoch(OURS)), PINNED, Verdict.HOLD),
    ("no leader epoch of a table above us", view(of_no_epoch(receipt("table", 11))), PINNED, Verdict.HOLD),
    ("no leader epoch where any commit counts", view(of_no_epoch(OURS)), ANY, Verdict.HOLD),
    ("a foreign commit without one that counts", view(of_no_epoch(None)), ANY, Verdict.PROCESSED),
    ("a first raised soon after we sent again", view(seen(15, receipt("table", 12), 15)), SENT_AGAIN, Verdict.HOLD),
    ("the first for which we sent again", view(seen(15, receipt("table", 11), 15)), SENT_AGAIN, Verdict.RETURN),
    ("a foreign commit, and a leader of the past", view(led_by_the_past(15, None, 30)), ANY, Verdict.HOLD),
    ("read under the leader before ours", view(read_under(2, 15)), PINNED, Verdict.HOLD),
    ("read under the leader before ours, and not yet", view(read_under(2, 14)), PINNED, Verdict.WAIT),
    ("read under a later leader", view(read_under(4, 15)), PINNED, Verdict.PROCESSED),
    ("a foreign commit of the leader before ours", view(read_under(2, 15, None)), ANY, Verdict.HOLD),
    ("a foreign commit of the leader before ours, not yet", view(read_under(2, 14, None)), ANY, Verdict.WAIT),
    ("a foreign commit of a later leader", view(read_under(4, 15, None)), ANY, Verdict.PROCESSED),
    ("a leader of the past, with all of it", view(led_by_the_past(15, OURS, 30)), PINNED, Verdict.HOLD),
    ("a leader of the past, with less", view(led_by_the_past(15, OURS, 2)), PINNED, Verdict.HOLD),
    ("a leader of the past, not yet", view(led_by_the_past(14, OURS, 15)), PINNED, Verdict.HOLD),
    ("no table pinned", view(seen(15, OURS, 15)), Rules(None), Verdict.HOLD),
    ("the log ends at our highest", view(seen(99, OURS, 14)), PINNED, Verdict.RETURN),
    ("the log ends below us under a foreign commit", view(seen(99, None, 2)), PINNED, Verdict.RETURN),
    ("the log's end is unknown", view(seen(99, OURS, None)), PINNED, Verdict.WAIT),
    ("nothing known of a partition", View("topic-1", {1: DONE}), PINNED, Verdict.WAIT),
    ("another topic", view(seen(15, OURS, 15), topic_id="topic-2"), PINNED, Verdict.RETURN),
    ("one holds, another is sent again", view(seen(99, None, 99), seen(99, OURS, 3)), PINNED, Verdict.RETURN),
]


@pytest.mark.parametrize(("looked", "rules", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_cases(looked: View, rules: Rules, verdict: Verdict) -> None:
    decision = decide(BATCH, looked, rules)

    assert decision.verdict is verdict
    assert bool(decision.reason) is (verdict in (Verdict.HOLD, Verdict.RETURN))


OFFSET = st.integers(0, 12)
EPOCHS = st.integers(EPOCH - 1, EPOCH + 1)
RECEIPTS = st.none() | st.builds(
    Receipt,
    st.sampled_from(["table", "other"]),
    OFFSET,
    st.sampled_from(["topic-1", "topic-2"]),
    failing_since=st.none() | st.just(1795848655738),
)
PARTITIONS = st.dictionaries(
    st.integers(0, 2),
    st.builds(PartitionView, st.none() | OFFSET, RECEIPTS, st.none() | OFFSET, EPOCHS, st.none() | EPOCHS),
)
VIEWS = st.builds(View, st.sampled_from(["topic-1", "topic-2"]), PARTITIONS)
BATCHES = st.builds(
    Batch,
    first=st.just(1),
    last=st.just(9),
    topic_id=st.just("topic-1"),
    partitions=st.dictionaries(
        st.integers(0, 2), st.builds(lambda low, more: Offsets(low, low + more, EPOCH), OFFSET, OFFSET), max_size=3
    ),
)


@pytest.mark.guarantee(4)
@given(batch=BATCHES, looked=VIEWS, table=st.sampled_from([None, "table", "other"]))
def test_nothing_is_processed_that_the_pinned_table_has_not_read_in_this_very_topic(
    batch: Batch, looked: View, table: str | None
) -> None:
    if decide(batch, looked, Rules(table)).verdict is not Verdict.PROCESSED:
        return

    assert looked.topic_id == batch.topic_id
    assert batch.partitions
    for partition, span in batch.partitions.items():
        known = looked.partitions[partition]
        assert known.receipt is not None
        assert known.receipt.table == table
        assert known.committed_epoch is not None
        assert known.committed_epoch >= EPOCH
        assert known.leader_epoch is not None
        assert known.leader_epoch >= known.committed_epoch
        assert known.receipt.topic_id == batch.topic_id
        assert known.committed is not None
        assert known.log_end is not None
        assert not objection(partition, known, looked.topic_id, Rules(table)), "doctor would object"
        assert known.receipt.first <= span.lowest <= span.highest < known.committed <= known.log_end


@pytest.mark.guarantee(4)
@given(batch=BATCHES, looked=VIEWS)
def test_the_note_that_effects_fail_holds_what_would_wait_and_changes_nothing_else(batch: Batch, looked: View) -> None:
    plain = {
        number: replace(known, receipt=known.receipt and replace(known.receipt, failing_since=None))
        for number, known in looked.partitions.items()
    }
    noted, as_older = decide(batch, looked, PINNED), decide(batch, View(looked.topic_id, plain), PINNED)
    if noted != as_older:
        assert (as_older.verdict, noted.verdict) == (Verdict.WAIT, Verdict.HOLD)
        assert "have failed since 2026-11-28T06:50:55" in noted.reason


@given(batch=BATCHES, looked=VIEWS, more=OFFSET)
def test_a_table_that_goes_on_reading_never_loses_a_receipt(batch: Batch, looked: View, more: int) -> None:
    later = {
        number: PartitionView(
            None if known.committed is None else known.committed + more,
            known.receipt,
            None if known.log_end is None else known.log_end + more,
            known.leader_epoch,
            known.committed_epoch,
        )
        for number, known in looked.partitions.items()
    }
    before = decide(batch, looked, PINNED).verdict
    after = decide(batch, View(looked.topic_id, later), PINNED).verdict

    assert after is Verdict.PROCESSED or before is not Verdict.PROCESSED


def test_only_receipts_that_are_not_held_can_pin_a_table_and_only_what_they_cover_does() -> None:
    held = [
        PartitionView(15, receipt("nameless", 0), 15, EPOCH),
        PartitionView(15, receipt("of-the-future", 0), 15, EPOCH, EPOCH + 1),
        seen(15, Receipt("other", 0, "topic-2"), 15),
        seen(16, receipt("beyond", 0), 15),
        seen(15, receipt("above", 16), 15),
        seen(15, None, 15),
    ]
    looked = View("topic-1", dict(enumerate([*held, seen(15, OURS, 15)])))
    own, others = (Batch(1, 5, "topic-1", {number: Offsets(10, 14, EPOCH)}) for number in (len(held), len(held) - 1))
    decided = [(batch, decide(batch, looked, Rules("table", any_commit=True))) for batch in (own, others)]

    assert looked.receipts() == [OURS]
    assert {decision.verdict for _, decision in decided} == {Verdict.PROCESSED}
    assert is_taken(decided, looked)
    assert not is_taken(decided[1:], looked)


@pytest.mark.guarantee(4)
def test_a_table_that_leaves_out_more_and_more_has_events_sent_again_once_an_hour_and_a_right_receipt_counts() -> None:
    resends, lowest, sent = Resends(), 0, 0
    for now in range(0, 2 * int(RESEND_SECONDS), 60):
        end = lowest + 5
        batch = Batch(1, 5, "topic-1", {0: Offsets(lowest, end - 1, EPOCH)})
        looked = View("topic-1", {0: seen(end, receipt("table", end), end)})
        decided = [(batch, decide(batch, looked, Rules("table", first_max=resends.first_max(now))))]
        resends.note(decided, looked, now)
        if decided[0][1].verdict is Verdict.RETURN:
            lowest, sent = end, sent + 1
        right = View("topic-1", {0: seen(end, receipt("table", lowest), end + 5)})
        rules = Rules("table", first_max=resends.first_max(now))
        assert lowest == end or decide(batch, right, rules).verdict is Verdict.PROCESSED

    assert sent == 2


@pytest.mark.parametrize(
    ("pinned", "receipts", "table"),
    [
        (None, [], None),
        (None, [receipt("a", 0), receipt("b", 0)], "a"),
        ("a", [receipt("b", 0)], "a"),
        ("a", [Receipt("b", 0, "topic-1", succeeds="a")], "b"),
        ("a", [Receipt("b", 0, "topic-1", succeeds="c")], "a"),
        ("a", [Receipt("c", 0, "topic-1", succeeds="b,a")], "c"),
        ("a", [receipt("a", 0), Receipt("b", 0, "topic-1", succeeds="a")], "b"),
        ("b", [receipt("a", 0), Receipt("b", 0, "topic-1", succeeds="a")], "b"),
    ],
)
def test_the_first_table_is_pinned_and_only_its_successor_takes_over(
    pinned: str | None, receipts: list[Receipt], table: str | None
) -> None:
    assert choose_table(pinned, receipts) == table


SECONDS = 30.0
GATEWAYS = 3_000


@given(st.integers())
def test_the_first_pause_ends_within_the_interval_and_the_others_near_it(seed: int) -> None:
    first, *others = islice(pauses(Random(seed), SECONDS), 20)
    assert 0 <= first <= SECONDS
    assert all(SECONDS * (1 - JITTER) <= pause <= SECONDS * (1 + JITTER) for pause in others)


def test_the_polls_of_gateways_that_start_together_are_spread_over_the_interval() -> None:
    """Given gateways that start at one moment, no second has twice as many polls as the mean."""
    polls = Counter(
        int(at) for number in range(GATEWAYS) for at in islice(accumulate(pauses(Random(number), SECONDS)), 10)
    )
    mean = GATEWAYS / SECONDS
    assert max(polls[second] for second in range(int(8 * SECONDS))) < 2 * mean
