"""Decides what the state of Kafka means for a forwarded batch: pure rules, no I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from agent.store.port import Batch
from contract.receipt import Receipt
from contract.timestamp import rfc3339


class Verdict(IntEnum):
    """The decision for a batch; the highest verdict of its partitions counts."""

    PROCESSED = 0
    """The table has it."""
    WAIT = 1
    """The table does not have it yet."""
    HOLD = 2
    """The group's commit is no receipt that counts: an operator has to act."""
    RETURN = 3
    """The table will never read it at these offsets: it has to be sent again."""


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """A verdict and, for HOLD and RETURN, its reason."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """The state of one partition; None means an unknown value."""

    committed: int | None = None
    """The group's committed offset: the next that it would read."""
    receipt: Receipt | None = None
    """The receipt beside that offset; None where the job did not commit it."""
    log_end: int | None = None
    """The offset of the next record to be appended."""
    leader_epoch: int | None = None
    """The epoch of the leader that answered."""
    committed_epoch: int | None = None
    """The leader epoch beside the group's offset: the committer has read the log as it was under that leader, or under
    a later one; None where the commit has none."""


@dataclass(frozen=True, slots=True)
class View:
    """The state of Kafka; the topic's id is read last: if it is the batch's, the offsets are of that topic, too."""

    topic_id: str
    partitions: Mapping[int, PartitionView]

    def receipts(self) -> Sequence[Receipt]:
        """Return the receipts that count if their table does, in the partitions' order."""
        return [
            seen.receipt
            for partition, seen in sorted(self.partitions.items())
            if seen.receipt is not None and not objection(partition, seen, self.topic_id, Rules(seen.receipt.table))
        ]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which commits count as receipts."""

    table: str | None
    """The id of the table whose receipts count; None before the first receipt."""
    any_commit: bool = False
    """Whether a commit without our metadata counts."""
    first_max: Mapping[int, int] = field(default_factory=dict)
    """The highest `first` of a partition for which batches are sent again now; any where there is none."""


def decide(batch: Batch, view: View, rules: Rules) -> BatchDecision:
    """Return the decision on one batch."""
    if view.topic_id != batch.topic_id:
        return BatchDecision(Verdict.RETURN, f"the topic was replaced: {batch.topic_id} is {view.topic_id} now")
    decisions = (
        _decide_partition(batch, partition, view.partitions.get(partition, PartitionView()), rules)
        for partition in batch.partitions
    )
    return max(decisions, key=lambda decision: decision.verdict, default=_NOWHERE)


def choose_table(pinned: str | None, receipts: Iterable[Receipt]) -> str | None:
    """Return the table id to pin: the first one read, then only one that succeeds the pinned one."""
    return next((receipt.table for receipt in receipts if pinned is None or pinned in receipt.succeeded), pinned)


def is_taken(decided: Iterable[tuple[Batch, BatchDecision]], view: View) -> bool:
    """Whether a batch is processed by a receipt, and not by any commit alone."""
    processed = (batch for batch, decision in decided if decision.verdict is Verdict.PROCESSED)
    return any(view.partitions[partition].receipt is not None for batch in processed for partition in batch.partitions)


def objection(partition: int, seen: PartitionView, topic_id: str, rules: Rules) -> str:
    """Return why a partition's commit does not count as a receipt for any batch; empty without an objection."""
    receipt, committed, end = seen.receipt, seen.committed, seen.log_end
    if committed is None:
        return ""
    if end is not None and committed > end:
        # Without the numbers, which grow: the same state would be reported again at every poll.
        return f"the group's offset in partition {partition} is beyond the log's end"
    if receipt is None:
        return _deposed(partition, seen) if rules.any_commit else FOREIGN
    if receipt.topic_id != topic_id:
        return f"the receipts are of topic {receipt.topic_id}, not of {topic_id}"
    if seen.committed_epoch is None:  # after a truncation the same offsets are those of other records
        return f"the receipt of partition {partition} has no leader epoch: the log that the table has read is unknown"
    if reason := _deposed(partition, seen):
        return reason
    if receipt.first > committed:
        return f"the receipt of partition {partition} begins above the group's own offset"
    return "" if receipt.table == rules.table else f"the receipts are of table {receipt.table}, not of {rules.table}"


FOREIGN: Final = "the group's offsets were committed by a foreign consumer, by a reset, or in another form"

_PROCESSED = BatchDecision(Verdict.PROCESSED)
_WAIT = BatchDecision(Verdict.WAIT)
_NOWHERE = BatchDecision(Verdict.RETURN, "the batch has no offset at all")


def _decide_partition(batch: Batch, partition: int, view: PartitionView, rules: Rules) -> BatchDecision:
    offsets, receipt = batch.partitions[partition], view.receipt
    if view.log_end is None:
        return _WAIT
    if receipt is not None and receipt.topic_id == batch.topic_id and (reason := _deposed(partition, view)):
        return BatchDecision(Verdict.HOLD, reason)  # before the log's end; a foreign commit may name any epoch
    if view.log_end <= offsets.highest:
        lost = f"partition {partition} ends at {view.log_end}, below our offset {offsets.highest}"
        return BatchDecision(Verdict.RETURN, lost)
    if view.committed is None:
        return _WAIT
    if reason := objection(partition, view, batch.topic_id, rules):
        return BatchDecision(Verdict.HOLD, reason)
    if receipt is not None and offsets.lowest < receipt.first:
        return _decide_passed(partition, offsets.lowest, receipt.first, rules)
    return _wait(receipt) if offsets.highest >= view.committed else _decide_log(partition, offsets.leader_epoch, view)


def _wait(receipt: Receipt | None) -> BatchDecision:
    """Decide on records that the table has not done yet."""
    if receipt is None or receipt.failing_since is None:
        return _WAIT
    since = rfc3339(receipt.failing_since)
    return BatchDecision(Verdict.HOLD, f"the effects of the table's new rows have failed since {since}")


def _decide_log(partition: int, sent_under: int | None, view: PartitionView) -> BatchDecision:
    """Decide on records below the receipt's offset; hold them if the receipt is of a log truncated since."""
    read_under = view.committed_epoch
    if sent_under is not None and read_under is not None and read_under < sent_under:
        # The table has read other records at these offsets, which a truncation has removed.
        return BatchDecision(Verdict.HOLD, f"the receipt of partition {partition} is of a log that was truncated since")
    return _PROCESSED


def _deposed(partition: int, view: PartitionView) -> str:
    """Return the objection to an answer from before the receipt's leader epoch; empty without one.

    The end of a former leader's log proves nothing.
    """
    answered, read_under = view.leader_epoch, view.committed_epoch
    if answered is None or read_under is None or answered >= read_under:
        return ""
    return (
        f"the receipt of partition {partition} is of leader epoch {read_under}, but epoch {answered} answers: "
        "a leader that was deposed, or the receipt is wrong"
    )


def _decide_passed(partition: int, lowest: int, first: int, rules: Rules) -> BatchDecision:
    """Decide on records below the table's beginning, which it has not read."""
    if first > rules.first_max.get(partition, first):
        again = f"the table has again left out our records in partition {partition}: we send them again once an hour"
        return BatchDecision(Verdict.HOLD, again)
    passed = f"the table reads partition {partition} from {first} on, above our offset {lowest}"
    return BatchDecision(Verdict.RETURN, passed)
