"""The truncation check: whether a batch's records survived a change of leader (KIP-101, KIP-320).

A new leader's log may be truncated below what an earlier one had acked, and grow past it again: then other records have
these offsets. A truncation removes the end of a log, so the highest record that a leader has appended proves those
below it. That leader is read from the log itself (the record batch's leader epoch): a later leader's record would prove
nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.forward.receipts.rules import BatchDecision, Verdict, View
from agent.store.port import Batch, LabelRange

Decided = Sequence[tuple[Batch, BatchDecision]]


@dataclass(frozen=True, slots=True, order=True)
class Leadership:
    """A leader epoch of a partition, which has ended."""

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RecordLabel:
    """The label of the record at an offset, and the leader epoch of its record batch."""

    gateway: str
    epoch: str
    sequence: int
    leader_epoch: int | None = None

    def proves(self, leader_epoch: int | None, gateway: str, labels: Iterable[LabelRange]) -> bool:
        """Whether this is one of a gateway's labels, appended in this leader epoch."""
        is_own = self.gateway == gateway and any(own.holds(self.epoch, self.sequence) for own in labels)
        return is_own and self.leader_epoch == leader_epoch


def past_leaderships(batch: Batch, view: View) -> set[Leadership]:
    """Return the leaderships that a batch was appended under and that have ended."""
    leaderships = set()
    for partition, offsets in batch.partitions.items():
        now = view.partitions[partition].leader_epoch if partition in view.partitions else None
        if offsets.leader_epoch is not None and now != offsets.leader_epoch:
            leaderships.add(Leadership(partition, offsets.leader_epoch))
    return leaderships


def records_to_check(decided: Decided, view: View) -> Mapping[Leadership, Batch]:
    """Return, for each ended leadership, the batch with its highest record among those to be processed."""
    highest: dict[Leadership, Batch] = {}
    for batch, decision in decided:
        if decision.verdict is Verdict.PROCESSED:
            for leadership in past_leaderships(batch, view):
                other = highest.get(leadership)
                offset = batch.partitions[leadership.partition].highest
                if other is None or offset > other.partitions[leadership.partition].highest:
                    highest[leadership] = batch
    return highest


def overrule(decided: Decided, view: View, survived: Callable[[Leadership], bool | None]) -> Decided:
    """Return the decisions, with RETURN for truncated batches, and WAIT where `survived` is None (unknown)."""
    return [
        (batch, _overruled(batch, view, survived) or decision if decision.verdict is Verdict.PROCESSED else decision)
        for batch, decision in decided
    ]


def _overruled(batch: Batch, view: View, survived: Callable[[Leadership], bool | None]) -> BatchDecision | None:
    for partition, offsets in sorted(batch.partitions.items()):
        if offsets.leader_epoch is None:
            return BatchDecision(Verdict.RETURN, f"partition {partition}: the leader epoch of our records is unknown")
    answers = {leadership: survived(leadership) for leadership in sorted(past_leaderships(batch, view))}
    for leadership, answer in answers.items():
        if answer is False:
            return BatchDecision(
                Verdict.RETURN,
                f"partition {leadership.partition} has lost our records with the leader of epoch "
                f"{leadership.leader_epoch}",
            )
    return BatchDecision(Verdict.WAIT) if None in answers.values() else None


RESEND_SECONDS: Final = 3_600.0
"""How soon a partition's batches are sent again for a `first` that was raised since: a table that raises it with each
commit must not cost a link all that it carries."""


class Resends:
    """The receipts' `first`, by partition, for which batches were sent again lately; times in monotonic seconds.

    Batches that were under way then are sent again for the same `first`: what follows stands above it.
    """

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, float]] = {}

    def first_max(self, now: float) -> Mapping[int, int]:
        """Return the highest `first`, by partition, for which batches are sent again; any where none is given."""
        return {partition: first for partition, (first, at) in self._sent.items() if now - at < RESEND_SECONDS}

    def note(self, decided: Decided, view: View, now: float) -> None:
        known = self.first_max(now)
        for batch, decision in decided:
            if decision.verdict is Verdict.RETURN and view.topic_id == batch.topic_id:
                for partition, offsets in batch.partitions.items():
                    receipt = view.partitions[partition].receipt
                    if receipt is not None and max(offsets.lowest, known.get(partition, -1)) < receipt.first:
                        self._sent[partition] = receipt.first, now
