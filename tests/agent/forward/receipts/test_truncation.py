"""A model of a partition, appended to, read, truncated and re-elected at any time: no receipt covers unread records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.forward.errors import LeaderChangedError
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.receipts.rules import BatchDecision, PartitionView, Rules, Verdict, View, decide
from agent.forward.receipts.truncation import Leadership, RecordLabel, overrule, records_to_check
from agent.store.port import Batch, LabelRange, Offsets
from contract.receipt import Receipt

GATEWAY, EPOCH, TABLE, PARTITION = "gw", "e", "table", 0


@dataclass
class Partition:
    """A log whose records contain the leader epoch in which they were appended."""

    leader_epoch: int = 0
    log: list[RecordLabel] = field(default_factory=list)
    lowest_end: int = 0
    """The lowest end of the log since the table's last check, or its end then."""

    def append(self, gateway: str, sequence: int) -> int:
        self.log.append(RecordLabel(gateway, EPOCH, sequence, self.leader_epoch))
        return len(self.log) - 1

    def cut(self, left: int) -> None:
        """Lose the end of the log; the next leader has a new epoch."""
        del self.log[left:]
        self.lowest_end = min(self.lowest_end, left)
        self.leader_epoch += 1


@dataclass
class Table:
    """Reads the log and commits how far; it stops permanently if the log was truncated below its position."""

    partition: Partition
    read: set[int] = field(default_factory=set)
    committed: int = 0
    leader_epoch: int = 0
    stopped: bool = False

    def look(self) -> None:
        log = self.partition.log
        self.stopped |= self.partition.lowest_end < self.committed
        if not self.stopped:
            self.read |= {found.sequence for found in log[self.committed :] if found.gateway == GATEWAY}
            self.committed, self.leader_epoch = len(log), self.partition.leader_epoch
            self.partition.lowest_end = len(log)

    def view(self, now: Partition) -> View:
        """Return the group's committed offset, and the answer of a leader."""
        receipt = Receipt(TABLE, 0, "t")
        seen = PartitionView(self.committed, receipt, len(now.log), now.leader_epoch, self.leader_epoch)
        return View("t", {PARTITION: seen})


@dataclass
class Session:
    """Sends a batch record by record and marks it, as the delivery modes do."""

    partition: Partition
    known: dict[int, int]
    position: int = 1
    in_flight: InFlightBatch | None = None
    marked: list[Batch] = field(default_factory=list)

    def send(self) -> None:
        if self.in_flight is None:
            self.in_flight = InFlightBatch(self.position, self.known)
        self.in_flight.sent(self.position)
        offset = self.partition.append(GATEWAY, self.position)
        self.in_flight.report(None, Message(topic="t", partition=PARTITION, offset=offset))
        self.position += 1

    def mark(self, answer: int) -> None:
        """Mark the batch in flight, if its leader's answer permits; otherwise it would be sent again."""
        in_flight, self.in_flight = self.in_flight, None
        self.known = {PARTITION: answer}
        if in_flight is not None:
            try:
                self.marked.append(in_flight.batch("t", self.known))
            except LeaderChangedError:
                return


def processed(partition: Partition, batches: list[Batch], view: View) -> list[Batch]:
    """Return the batches that are processed according to a poll."""
    decided = [(batch, decide(batch, view, Rules(TABLE))) for batch in batches]
    asked = records_to_check(decided, view)

    def survived(leadership: Leadership) -> bool:
        batch = asked[leadership]
        found = partition.log[batch.partitions[PARTITION].highest]
        return found.proves(leadership.leader_epoch, GATEWAY, [LabelRange(EPOCH, batch.first, batch.last)])

    return [batch for batch, decision in overrule(decided, view, survived) if decision.verdict is Verdict.PROCESSED]


STEPS = st.lists(
    st.sampled_from(["send"] * 4 + ["mark"] * 2 + ["mark as the leader before", "other", "cut", "table"]), max_size=40
)


def play(steps: list[str], cut: Callable[[Partition], None]) -> tuple[Partition, Session, Table]:
    partition = Partition()
    session, table = Session(partition, {PARTITION: 0}), Table(partition)
    for step in steps:
        match step:
            case "send":
                session.send()
            case "mark":
                session.mark(partition.leader_epoch)
            case "mark as the leader before":  # one that is cut off from its successor
                session.mark(max(0, partition.leader_epoch - 1))
            case "other":
                partition.append("another gateway", 1)
            case "cut":
                cut(partition)
            case "table":
                table.look()
    return partition, session, table


@pytest.mark.guarantee(4)
@settings(max_examples=500)
@given(steps=STEPS, data=st.data())
def test_nothing_is_processed_that_the_table_has_not_read_whenever_the_log_was_cut_and_whoever_answered(
    steps: list[str], data: st.DataObject
) -> None:
    partition, session, table = play(
        steps, lambda partition: partition.cut(data.draw(st.integers(0, len(partition.log)), "left"))
    )

    for batch in processed(partition, session.marked, table.view(partition)):
        assert table.read >= set(range(batch.first, batch.last + 1))


@given(steps=STEPS)
def test_where_nothing_was_cut_everything_that_was_marked_is_processed(steps: list[str]) -> None:
    def elect(partition: Partition) -> None:
        partition.leader_epoch += 1  # another leader, with all records

    steps = [step for step in steps if step != "mark as the leader before"]
    partition, session, table = play(steps, elect)
    table.look()

    assert processed(partition, session.marked, table.view(partition)) == session.marked


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


def test_a_label_is_ours_only_with_our_gateway_and_in_the_batchs_range() -> None:
    labels = (LabelRange("e1", 5, 9), LabelRange("e2", 1, 3))
    assert RecordLabel("gw", "e1", 9, 7).proves(7, "gw", labels)
    assert RecordLabel("gw", "e2", 1, 7).proves(7, "gw", labels)
    assert not RecordLabel("gw", "e2", 4, 7).proves(7, "gw", labels)
    assert not RecordLabel("gw", "e3", 2, 7).proves(7, "gw", labels)
    assert not RecordLabel("other", "e1", 9, 7).proves(7, "gw", labels)
