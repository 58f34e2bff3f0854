"""The trace of a schedule: what the agent, Kafka and the job do to the events of one device, a line each.

The agent's ports and the store's transactions are wrapped; what Kafka and the table have is read off the world's steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent.forward.delivery.at_least_once import AtLeastOnce, PipelinedSession
from agent.store.event_store import EventStore
from agent.store.memory import Memory
from agent.store.port import Batch, Outcome, Submission
from agent.store.progress import Progress
from agent.store.write.committer import Committer
from agent.store.write.decision import Decision
from agent.store.write.removal import Removal
from tests.schedules.job_process import Job
from tests.schedules.kafka.clients import Producer
from tests.schedules.kafka.cluster import GROUP, Cluster
from tests.schedules.spark import fingerprint_of
from tests.schedules.traces import Line

if TYPE_CHECKING:
    import pytest


class Tracer:
    """Notes the lines of one schedule; positions count the device's events in the order in which it sent them."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._numbers: dict[bytes, int] = {}
        """The position of each event in the model, by its fingerprint as the records have it."""
        self._places: dict[int, int] = {}
        """The same by its position in the store."""
        self._kept: set[int] = set()
        self._is_up = False
        self._partition = 0
        """That of the device."""
        self._appended: dict[int, int] = {}
        self._rows = 0
        self._plans = 0
        self._receipted = 0
        self._is_job_starting = True
        self._is_batch_empty = False

    def begin(self, cluster: Cluster, job: Job, patch: pytest.MonkeyPatch) -> None:
        """Wrap the agent's ports, for all lives."""
        self._cluster = cluster
        self._job = job
        self._wrap_store(patch)
        self._wrap_progress(patch)
        self._wrap_forwarder(patch)
        elect = Cluster.elect

        def elect_and_note(cluster: Cluster, partition: int) -> None:
            elect(cluster, partition)
            if self._numbers and partition == self._partition:  # earlier ones only begin the count of epochs
                self._note("elected")

        patch.setattr(Cluster, "elect", elect_and_note)

    def settle(self) -> None:
        """Append the last line."""
        self._note("settled", len(self._numbers), kept=self._kept)

    def look(self, step: str) -> None:
        """Note what a step of the world has changed in Kafka and in the job; called at each of its steps."""
        text = step.partition(" ")[2]
        self._look_at_plans()
        if text.startswith("kafka appends"):
            self._look_at_logs()
        elif text.startswith("kafka commits"):
            self._note_receipt()
        elif text.startswith("table commits"):
            self._look_at_table()
        elif text.startswith("agent") and text.endswith(" killed") and self._is_up:
            self._is_up = False
            self._note("killed")
        elif text.startswith(("job killed", "job fails")):
            self._is_job_starting = True
            self._note("job killed")

    def _note(self, event: str, position: int = 0, positions: Sequence[int] | set[int] = (), **sets: Any) -> None:
        self.lines.append(
            Line(event, position, frozenset(positions), **{name: frozenset(found) for name, found in sets.items()})
        )

    # The store

    def _wrap_store(self, patch: pytest.MonkeyPatch) -> None:
        opening, closing, submit = EventStore._open, EventStore._close, EventStore.submit
        write, purge = Committer._write, Removal._purge_piece

        def open_and_note(store: EventStore) -> None:
            opening(store)
            self._is_up = True
            self._note_opened(store._memory)

        def close_and_note(store: EventStore) -> None:
            closing(store)
            self._is_up = False
            self._note("ended")

        def note_and_submit(store: EventStore, submission: Submission) -> None:
            numbers = [self._number(candidate.fingerprint) for candidate in submission.candidates]
            self._partition = self._cluster.partition_of(submission.candidates[0].event.device.encode())
            self._note_each("received", numbers)

            def note_and_answer(outcome: Outcome) -> None:
                self._note_each("refused" if outcome.refusal else "acked", numbers)
                submission.done(outcome)

            submit(
                store,
                Submission(
                    submission.candidates,
                    submission.rejects,
                    submission.retransmission_key,
                    note_and_answer,
                    submission.uptime_ms,
                ),
            )

        def write_and_note(committer: Committer, decision: Decision) -> None:
            for fingerprint, place in decision.fingerprints.items():
                self._places.pop(place, None)  # of a commit that a kill has lost
                if (number := self._numbers.get(_header(fingerprint))) is not None:
                    self._places[place] = number
            write(committer, decision)
            committed = self._numbers_of(decision.first_position, decision.next_position - 1)
            self._kept.update(committed)
            self._note_each("committed", committed)

        def purge_and_note(removal: Removal, up_to: int) -> None:
            purge(removal, up_to)
            purged = [number for number in self._numbers_of(1, removal._memory.first_kept - 1) if number in self._kept]
            self._kept.difference_update(purged)
            self._note_each("purged", purged)

        patch.setattr(EventStore, "_open", open_and_note)
        patch.setattr(EventStore, "_close", close_and_note)
        patch.setattr(EventStore, "submit", note_and_submit)
        patch.setattr(Committer, "_write", write_and_note)
        patch.setattr(Removal, "_purge_piece", purge_and_note)

    def _note_opened(self, memory: Memory) -> None:
        """Note what an opened store holds."""
        coverage = memory.progress._coverage
        processed = [number for first, last in coverage.processed for number in self._numbers_of(first, last)]
        forwarded = [number for batch in coverage.forwarded() for number in self._numbers_of(batch.first, batch.last)]
        self._kept = set(self._numbers_of(memory.first_kept, memory.end))
        stored = self._numbers_of(1, memory.end)
        self._note("opened", max(stored, default=0), processed, kept=self._kept, forwarded=forwarded)

    def _number(self, fingerprint: bytes | None) -> int:
        assert fingerprint is not None
        return self._numbers.setdefault(_header(fingerprint), len(self._numbers) + 1)

    def _numbers_of(self, first: int, last: int) -> list[int]:
        return [number for place, number in sorted(self._places.items()) if first <= place <= last]

    def _note_each(self, event: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._note(event, number)

    # Marks

    def _wrap_progress(self, patch: pytest.MonkeyPatch) -> None:
        mark_forwarded, mark_processed = Progress.mark_forwarded, Progress.mark_processed
        returning = Progress.return_batches

        def note_forwarded(progress: Progress, batch: Batch, note: tuple[str, str] | None = None) -> None:
            mark_forwarded(progress, batch, note)
            self._note_batches("forwarded", [batch])

        def note_processed(progress: Progress, batches: Sequence[Batch], monotonic_ms: int, floor: int) -> None:
            mark_processed(progress, batches, monotonic_ms, floor)
            self._note_batches("receipted", batches)

        def note_returned(progress: Progress, batches: Sequence[Batch]) -> None:
            returning(progress, batches)
            self._note_batches("returned", batches)

        patch.setattr(Progress, "mark_forwarded", note_forwarded)
        patch.setattr(Progress, "mark_processed", note_processed)
        patch.setattr(Progress, "return_batches", note_returned)

    def _note_batches(self, event: str, batches: Sequence[Batch]) -> None:
        numbers = [number for batch in batches for number in self._numbers_of(batch.first, batch.last)]
        if numbers:
            self._note(event, positions=numbers)

    # The forwarder and its producer

    def _wrap_forwarder(self, patch: pytest.MonkeyPatch) -> None:
        opening, closing, produce = AtLeastOnce.open, PipelinedSession.close, Producer.produce

        def note_and_open(mode: AtLeastOnce, *arguments: Any) -> PipelinedSession:
            self._note("connected")
            return opening(mode, *arguments)

        def close_and_note(session: PipelinedSession) -> None:
            closing(session)
            self._note("disconnected")

        def produce_and_note(
            producer: Producer, topic: str, value: bytes, key: bytes, partition: int, delivered: Any, headers: Any
        ) -> None:
            number = self._numbers.get(dict(headers)["ce_id"])

            def note_and_report(error: Any, message: Any) -> None:
                if number is not None and error is None:
                    self._note("reported", number)
                delivered(error, message)

            produce(producer, topic, value, key, partition, note_and_report, headers)
            if number is not None:
                self._note("produced", number)

        patch.setattr(AtLeastOnce, "open", note_and_open)
        patch.setattr(PipelinedSession, "close", close_and_note)
        patch.setattr(Producer, "produce", produce_and_note)

    # Kafka and the job

    def _look_at_logs(self) -> None:
        for partition, place in enumerate(self._cluster.partitions):
            for record in place.log[self._appended.get(partition, 0) :]:
                if (number := self._numbers.get(fingerprint_of(record))) is not None:
                    self._note("appended", number)
            self._appended[partition] = place.end

    def _look_at_plans(self) -> None:
        for planned in self._job.plans[self._plans :]:
            start, end = (places.get(self._partition, 0) for places in (planned.starts, planned.ends))
            records = self._records(start, end)
            self._is_batch_empty = not records
            if records:
                self._note("planned", len(self._records(0, end)), records)
        self._plans = len(self._job.plans)

    def _look_at_table(self) -> None:
        rows = self._job.table.rows
        found = [self._numbers.get(fingerprint_of(row.record)) for row in rows[self._rows :]]
        self._rows = len(rows)
        if not self._is_batch_empty:
            self._note("written", positions=[number for number in found if number is not None])

    def _note_receipt(self) -> None:
        """Note a receipt; at a start those of the last batch are repeated, and a batch without an event has none."""
        committed = self._cluster.groups.get(GROUP, {}).get(self._partition)
        records = [] if committed is None else self._records(0, committed.offset)
        if records and (self._is_job_starting or not self._is_batch_empty):
            self._note("receipt", len(records), records[self._receipted :])
            self._receipted = len(records)
        self._is_job_starting = False

    def _records(self, start: int, end: int) -> list[int]:
        """Return the device's events in a range of offsets."""
        log = self._cluster.partitions[self._partition].log
        return [number for record in log[start:end] if (number := self._numbers.get(fingerprint_of(record)))]


def _header(fingerprint: bytes) -> bytes:
    return fingerprint.hex().encode()
