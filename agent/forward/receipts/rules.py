"""Decides what the state of Kafka means for a forwarded batch: pure rules, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from agent.store.port import Batch
from contract.receipt import Receipt


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
    """The state of Kafka; the topic's id was read last, so where it is the batch's, so are the offsets."""

    topic_id: str
    partitions: Mapping[int, PartitionView]

    def receipts(self) -> Sequence[Receipt]:
        """Return the receipts that can count, in the partitions' order: of this topic, and with a leader epoch."""
        seen = [partition for _, partition in sorted(self.partitions.items()) if partition.committed_epoch is not None]
        receipts = [partition.receipt for partition in seen if partition.receipt is not None]
        return [receipt for receipt in receipts if receipt.topic_id == self.topic_id]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which commits count as receipts."""

    table: str | None
    """The pinned table id; None before the first receipt."""
    any_commit: bool = False
    """Whether a commit without our metadata counts."""


NO_EPOCH: Final = "has no leader epoch: the log that the table has read is unknown"
"""Why such a receipt does not count: the job always commits a leader epoch, and after a truncation the same offsets
are those of other records."""


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
    for receipt in receipts:
        if pinned is None or pinned in receipt.succeeded:
            return receipt.table
    return pinned


_PROCESSED = BatchDecision(Verdict.PROCESSED)
_WAIT = BatchDecision(Verdict.WAIT)
_NOWHERE = BatchDecision(Verdict.RETURN, "the batch has no offset at all")


def _decide_partition(batch: Batch, partition: int, view: PartitionView, rules: Rules) -> BatchDecision:
    offsets = batch.partitions[partition]
    if view.log_end is None:
        return _WAIT
    if view.receipt is not None and view.receipt.topic_id == batch.topic_id and _is_former_leader(view):
        return _WAIT  # the end of a former leader's log proves nothing; a foreign commit may name any epoch
    if view.log_end <= offsets.highest:
        lost = f"partition {partition} ends at {view.log_end}, below our offset {offsets.highest}"
        return BatchDecision(Verdict.RETURN, lost)
    if view.committed is None:
        return _WAIT
    if view.committed > view.log_end:
        # Without the numbers, which grow: the same state would be reported again at every poll.
        beyond = f"the group's offset in partition {partition} is beyond the log's end"
        return BatchDecision(Verdict.HOLD, beyond)
    if objection := _object(batch, partition, view, view.committed, rules):
        return objection
    return _WAIT if offsets.highest >= view.committed else _decide_log(partition, offsets.leader_epoch, view)


def _decide_log(partition: int, sent_under: int | None, view: PartitionView) -> BatchDecision:
    """Decide on records below the receipt's offset: whether it is an offset of the log that holds them."""
    read_under = view.committed_epoch
    if read_under is None:  # only where any commit counts (`_object`)
        return _PROCESSED
    if sent_under is not None and read_under < sent_under:
        # The table has read other records at these offsets, which a truncation has removed.
        return BatchDecision(Verdict.HOLD, f"the receipt of partition {partition} is of a log that was truncated since")
    return _WAIT if _is_former_leader(view) else _PROCESSED


def _is_former_leader(view: PartitionView) -> bool:
    """Whether the answer came from a former leader: the table has read its successor's log."""
    answered, read_under = view.leader_epoch, view.committed_epoch
    return answered is not None and read_under is not None and answered < read_under


def _object(batch: Batch, partition: int, view: PartitionView, committed: int, rules: Rules) -> BatchDecision | None:
    """Return why a commit cannot be a receipt for a batch; None where it is one, now or once it has advanced."""
    lowest, receipt = batch.partitions[partition].lowest, view.receipt
    if receipt is None:
        foreign = "the group's offsets were committed by a foreign consumer or by a reset"
        return None if rules.any_commit else BatchDecision(Verdict.HOLD, foreign)
    if receipt.topic_id != batch.topic_id:
        return BatchDecision(Verdict.HOLD, f"the receipts are of topic {receipt.topic_id}, not of {batch.topic_id}")
    if view.committed_epoch is None:
        return BatchDecision(Verdict.HOLD, f"the receipt of partition {partition} {NO_EPOCH}")
    if receipt.table != rules.table:
        return BatchDecision(Verdict.HOLD, f"the receipts are of table {receipt.table}, not of {rules.table}")
    if receipt.first > committed:
        return BatchDecision(Verdict.HOLD, f"the receipt of partition {partition} begins above the group's own offset")
    if lowest < receipt.first:
        passed = f"the table reads partition {partition} from {receipt.first} on, above our offset {lowest}"
        return BatchDecision(Verdict.RETURN, passed)
    return None
