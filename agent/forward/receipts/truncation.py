"""Whether records survived a change of leader: the highest one of each batch's leader is read back.

A new leader's log may be cut below what an earlier one had acked, and grow past it again: then the offsets are there
and other records stand at them. A cut takes the end of a log, so the highest record that a leader has appended proves
those below it. Which leader has appended it is read from the log itself (the record batch's own leader epoch): a later
record, taken for that leader's, would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.forward.receipts.rules import Decision, Verdict, View
from agent.store.port import Batch, LabelRange

Decided = Sequence[tuple[Batch, Decision]]


@dataclass(frozen=True, slots=True, order=True)
class Reign:
    """A partition under one leader, since over."""

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at an offset: the label of a record (whose gateway, which epoch, which sequence), and its leader."""

    gateway: str
    epoch: str
    sequence: int
    leader_epoch: int | None = None
    """The leader epoch in which it was appended, as the log has it."""

    def is_in(self, gateway: str, labels: Iterable[LabelRange]) -> bool:
        """Whether this is one of a gateway's own labels."""
        return self.gateway == gateway and any(
            self.epoch == own.epoch and own.first <= self.sequence <= own.last for own in labels
        )

    def proves(self, reign: Reign, gateway: str, labels: Iterable[LabelRange]) -> bool:
        """Whether this is one of a gateway's own labels, appended by this leader."""
        return self.leader_epoch == reign.leader_epoch and self.is_in(gateway, labels)


def reigns_of(batch: Batch, view: View) -> set[Reign]:
    """Return the leaders that took a batch and lead no more."""
    reigns = set()
    for partition, offsets in batch.partitions.items():
        now = view.partitions[partition].leader_epoch if partition in view.partitions else None
        if offsets.leader_epoch is not None and now != offsets.leader_epoch:
            reigns.add(Reign(partition, offsets.leader_epoch))
    return reigns


def to_read_back(decided: Decided, view: View) -> Mapping[Reign, Batch]:
    """Return for each reign the batch with its highest record among those that would be processed."""
    highest: dict[Reign, Batch] = {}
    for batch, decision in decided:
        if decision.verdict is Verdict.PROCESSED:
            for reign in reigns_of(batch, view):
                other = highest.get(reign)
                offset = batch.partitions[reign.partition].highest
                if other is None or offset > other.partitions[reign.partition].highest:
                    highest[reign] = batch
    return highest


def overrule(decided: Decided, view: View, survived: Callable[[Reign], bool | None]) -> Decided:
    """Return what did not survive a change of leader, and wait where that is not known (None)."""
    return [
        (batch, _overruled(batch, view, survived) or decision if decision.verdict is Verdict.PROCESSED else decision)
        for batch, decision in decided
    ]


def _overruled(batch: Batch, view: View, survived: Callable[[Reign], bool | None]) -> Decision | None:
    for partition, offsets in sorted(batch.partitions.items()):
        if offsets.leader_epoch is None:
            return Decision(Verdict.RETURN, f"partition {partition}: nobody knows which leader took our records")
    answers = {reign: survived(reign) for reign in sorted(reigns_of(batch, view))}
    for reign, answer in answers.items():
        if answer is False:
            return Decision(
                Verdict.RETURN,
                f"partition {reign.partition} has lost our records with the leader of epoch {reign.leader_epoch}",
            )
    return Decision(Verdict.WAIT) if None in answers.values() else None
