"""Batches whose leader has changed: one record of each former leader proves those below it, or they are sent again."""

from agent.forward.receipts.rules import BatchDecision, PartitionView, Verdict, View
from agent.forward.receipts.truncation import Leadership, RecordLabel, overrule, records_to_check
from agent.store.port import Batch, LabelRange, Offsets

PROCESSED = BatchDecision(Verdict.PROCESSED)


def view(**leaders: int | None) -> View:
    """Return a view of partitions 0, 1 …, each with its leader epoch."""
    return View("t", {int(name[1:]): PartitionView(99, None, 99, epoch) for name, epoch in leaders.items()})


def batch(first: int, **offsets: Offsets) -> Batch:
    return Batch(first, first + 4, "t", {int(name[1:]): span for name, span in offsets.items()})


def test_under_the_same_leader_nothing_is_read_back() -> None:
    decided = [(batch(1, p0=Offsets(0, 4, 7)), PROCESSED), (batch(6, p0=Offsets(5, 9, 7)), PROCESSED)]
    assert records_to_check(decided, view(p0=7)) == {}
    assert overrule(decided, view(p0=7), lambda _: False) == decided


def test_a_batch_of_an_unknown_leader_is_sent_again() -> None:
    decided = [(batch(1, p0=Offsets(0, 4, 7), p1=Offsets(0, 4)), PROCESSED)]
    assert [decision.verdict for _, decision in overrule(decided, view(p0=7, p1=0), lambda _: True)] == [Verdict.RETURN]


def test_the_highest_record_of_each_leader_is_read_back() -> None:
    low, high, later = batch(1, p0=Offsets(0, 4, 7)), batch(6, p0=Offsets(5, 9, 7)), batch(11, p0=Offsets(10, 14, 8))
    waiting = batch(16, p0=Offsets(15, 19, 8))
    decided = [(high, PROCESSED), (low, PROCESSED), (later, PROCESSED), (waiting, BatchDecision(Verdict.WAIT))]
    assert records_to_check(decided, view(p0=9)) == {Leadership(0, 7): high, Leadership(0, 8): later}


def test_what_is_lost_returns_and_what_is_unknown_waits() -> None:
    one, two = batch(1, p0=Offsets(0, 4, 7), p1=Offsets(0, 4, 3)), batch(6, p1=Offsets(5, 9, 3))
    decided = [(one, PROCESSED), (two, PROCESSED)]
    now = view(p0=8, p1=4)

    def verdicts(survived: dict[Leadership, bool | None]) -> list[Verdict]:
        return [decision.verdict for _, decision in overrule(decided, now, survived.get)]

    assert verdicts({Leadership(0, 7): True, Leadership(1, 3): True}) == [Verdict.PROCESSED, Verdict.PROCESSED]
    assert verdicts({Leadership(0, 7): False, Leadership(1, 3): True}) == [Verdict.RETURN, Verdict.PROCESSED]
    assert verdicts({Leadership(0, 7): False, Leadership(1, 3): None}) == [Verdict.RETURN, Verdict.WAIT]
    assert verdicts({Leadership(0, 7): None, Leadership(1, 3): True}) == [Verdict.WAIT, Verdict.PROCESSED]


def test_a_label_is_ours_only_with_our_gateway_and_leader_and_in_the_batchs_range() -> None:
    labels = (LabelRange("e1", 5, 9), LabelRange("e2", 1, 3))
    assert RecordLabel("gw", "e1", 9, 7).proves(7, "gw", labels)
    assert RecordLabel("gw", "e2", 1, 7).proves(7, "gw", labels)
    assert not RecordLabel("gw", "e1", 9, 8).proves(7, "gw", labels), "appended again by a later leader"
    assert not RecordLabel("gw", "e2", 4, 7).proves(7, "gw", labels)
    assert not RecordLabel("gw", "e3", 2, 7).proves(7, "gw", labels)
    assert not RecordLabel("other", "e1", 9, 7).proves(7, "gw", labels)
