"""Agents and jobs with one fault each, which the schedules must reveal; each is called in the schedule's process."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.forward.modes import exactly_once, transactional
from agent.forward.modes.confirmation import Confirmation
from agent.forward.modes.exactly_once import TransactionalSession
from agent.forward.modes.in_flight import InFlightBatch
from agent.forward.modes.transaction import Intent
from agent.forward.receipts import poller
from agent.forward.receipts import rules as receipt_rules
from agent.forward.receipts.rules import BatchDecision, PartitionView, Rules, Verdict
from agent.store.lanes import JoinedOutcome
from agent.store.outbox import StoreOutbox
from agent.store.port import Batch, Offsets, Outcome
from agent.store.ranges import Coverage
from cloud.stream import offsets
from cloud.stream.receipts import Receipts
from cloud.stream.topic_log import ReadLog
from cloud.table.commits import Commit
from tests.crashes.mutants import commits_without_flush
from tests.simulators.mutants import ack_before_commit, fingerprint_forgotten, receipt_before_commit, sequence_reused


def mark_before_report() -> None:
    """Count a batch as acked once it is sent."""
    InFlightBatch.acked = property(lambda batch: batch.failure is None)  # type: ignore[assignment]


def purge_before_receipt() -> None:
    """Count what is forwarded as processed."""
    mark = StoreOutbox.mark_forwarded

    def mark_both(self: StoreOutbox, batch: Batch, note: tuple[str, str] | None = None) -> None:
        mark(self, batch, note)
        self.mark_processed([batch])

    StoreOutbox.mark_forwarded = mark_both  # type: ignore[method-assign]


def holes_purged() -> None:
    """Purge up to the last processed event, whatever is before it."""

    def processed_to(self: Coverage, floor: int) -> int:
        return max((last for _, last in self.processed), default=floor - 1)

    Coverage.processed_to = processed_to  # type: ignore[method-assign]


def topic_unchecked() -> None:
    """Mark batches of a topic that is no longer the session's."""

    def collect_any(self: Confirmation, window: Any) -> Any:
        return self._collect_shared(window) or self._collect_own()

    Confirmation.poll = collect_any  # type: ignore[method-assign]


def leader_unchecked() -> None:
    """Mark a batch whose leader has changed between send and ack, under the later epoch."""

    def batch(self: InFlightBatch, topic_id: str, leader_epochs: Any) -> Batch:
        spans = {
            number: Offsets(low, high, leader_epochs[number])
            for number, (low, high) in sorted(self._partitions.items())
        }
        return Batch(self.first, self.last, topic_id, spans)

    InFlightBatch.batch = batch  # type: ignore[method-assign]


def receipt_beyond_the_end() -> None:
    """Take a receipt although the log has lost its records, or holds others at their offsets."""

    def decide(batch: Batch, view: Any, rules: Any) -> BatchDecision:
        seen = [(view.partitions[number].committed or 0, span) for number, span in batch.partitions.items()]
        has_all = all(span.highest < committed for committed, span in seen)
        return BatchDecision(Verdict.PROCESSED if has_all else Verdict.WAIT)

    module: Any = poller
    module.decide = decide
    module.records_to_check = lambda *_: {}


def receipt_of_the_next() -> None:
    """Take the offset that a group has committed for one that it has read."""
    decide = receipt_rules._decide_partition

    def decide_one_more(batch: Batch, partition: int, view: PartitionView, rules: Rules) -> BatchDecision:
        if view.committed is not None and view.log_end is not None:
            view = replace(view, committed=min(view.committed + 1, view.log_end))
        return decide(batch, partition, view, rules)

    receipt_rules._decide_partition = decide_one_more


def receipt_of_one_more() -> None:
    """Commit offsets that are one beyond what the table has read."""
    send = Receipts._send

    def send_one_more(self: Receipts, commit: Commit, check: Callable[[], None] = lambda: None) -> bool:
        ends = {number: end.offset for number, end in self._admin.ends(commit.ends).items()}
        more = {number: min(offset + 1, ends[number]) for number, offset in commit.ends.items()}
        return send(self, replace(commit, ends=more), check)

    Receipts._send = send_one_more  # type: ignore[method-assign]


def log_unchecked_by_the_job() -> None:
    """Read on in a topic or a log that has lost records."""

    def check(self: ReadLog, read: Any, ends: Any) -> dict[int, int]:
        return {number: end.leader_epoch or 0 for number, end in self._client.ends({**read.ends, **ends}).items()}

    ReadLog.check = check  # type: ignore[method-assign]
    offsets.check_log = lambda *_: None


def first_part_acked() -> None:
    """Answer a delivery of several lanes once its first part is stored."""
    add = JoinedOutcome.add

    def add_for_all(self: JoinedOutcome, part: int, outcome: Outcome) -> None:
        if not self._outcomes:
            for one, places in enumerate(self._places):
                add(self, one, replace(outcome, fingerprints=(b"",) * len(places), new=()))

    JoinedOutcome.add = add_for_all  # type: ignore[method-assign]


def middle_epochs_unknown() -> None:
    """Note of a transaction's labels those of the first and of the last epoch."""
    module: Any = exactly_once
    module.Intent = lambda marker, previous, batch, labels: Intent(marker, previous, batch, (labels[0], labels[-1]))


def sent_again_without_a_look() -> None:
    """Send the events of a transaction again whose outcome was not observed."""
    module: Any = exactly_once
    module.is_visible = lambda *_: False


def abort_unnoticed() -> None:
    """Mark a transaction that was reported as committed, and whose records another producer has aborted."""
    module: Any = exactly_once
    module.is_committed = lambda *_: True


def not_cleared() -> None:
    """Commit a session's first transaction with what may hang from before in its partitions."""
    fill = TransactionalSession._fill

    def fill_as_cleared(self: TransactionalSession, *arguments: Any) -> Any:
        batch = fill(self, *arguments)
        self._cleared |= batch.partitions.keys() if batch is not None else set()
        return batch

    TransactionalSession._fill = fill_as_cleared  # type: ignore[assignment, method-assign]


def end_sent_again() -> None:
    """Wait for the end of a transaction until the client has requested it again."""
    module: Any = exactly_once
    module.end_seconds_max = lambda _: transactional.STEP_SECONDS_MAX


def clear_unawaited() -> None:
    """Take an abort for carried out in the partitions once it is answered."""

    def clear(self: exactly_once.TransactionalSession, batch: Batch, stop: Any) -> None:
        self._transactional.abort(stop)
        self._cleared |= batch.partitions.keys()

    exactly_once.TransactionalSession._clear = clear  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        ack_before_commit,
        commits_without_flush,
        fingerprint_forgotten,
        sequence_reused,
        mark_before_report,
        purge_before_receipt,
        holes_purged,
        topic_unchecked,
        leader_unchecked,
        receipt_beyond_the_end,
        receipt_of_the_next,
        receipt_of_one_more,
        receipt_before_commit,
        log_unchecked_by_the_job,
        first_part_acked,
        middle_epochs_unknown,
        sent_again_without_a_look,
        abort_unnoticed,
        not_cleared,
        end_sent_again,
        clear_unawaited,
    )
}
