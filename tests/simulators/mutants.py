"""Mutants: agents and jobs with one bug each, made by replacing a function in their process (simulators/launch.py).

Each is a realistic bug, which the field test must reveal.
"""

import asyncio
import sqlite3
import time
from dataclasses import replace
from random import Random
from typing import Any

LATE_SECONDS = 2.0
FAILING_SHARE = 0.25
BEFORE_SECONDS = 5.0


def ack_before_commit() -> None:
    """Ack at once, and commit later."""
    from agent.store.event_store import EventStore
    from agent.store.port import Outcome, Submission

    def submit(self: EventStore, submission: Submission) -> None:
        submission.done(Outcome(accepted=len(submission.candidates)))
        silent = replace(submission, done=lambda _: None)
        asyncio.get_running_loop().call_later(LATE_SECONDS, self._writer.put, silent)

    EventStore.submit = submit  # type: ignore[method-assign]


def fingerprint_forgotten() -> None:
    """Recognise no event that is on disk."""
    from agent.store.fingerprints.index import FingerprintIndex

    FingerprintIndex.position = lambda *_: None  # type: ignore[method-assign]


def fingerprint_remembered_before_commit() -> None:
    """Remember an event before its commit, with some commits failing."""
    from agent.store.port import Outcome, Submission
    from agent.store.write import committer
    from agent.store.write.decision import Decision

    remembered: set[bytes] = set()
    random = Random(1)
    add, write = Decision.add, committer.write

    def add_remembering(self: Decision, submission: Submission) -> None:
        names = [candidate.fingerprint for candidate in submission.candidates]
        known = [name for name in names if name is not None]
        if names and len(known) == len(names) and remembered.issuperset(known):
            self.at_once.append((submission, Outcome(duplicates=len(names), fingerprints=tuple(known))))
            return
        remembered.update(known)
        add(self, submission)

    def write_or_fail(*arguments: Any) -> None:
        if random.random() < FAILING_SHARE:
            raise sqlite3.OperationalError("disk I/O error")
        write(*arguments)

    Decision.add = add_remembering  # type: ignore[method-assign]
    committer.write = write_or_fail  # type: ignore[assignment]


def sequence_reused() -> None:
    """Continue the stored epoch, so that an older copy of the store assigns the same labels again."""
    from agent.store.write.connection import WritingConnection

    started = WritingConnection.start

    def start_in_old_epoch(self: WritingConnection, connection: sqlite3.Connection) -> None:
        started(self, connection)
        last = self._memory.epochs.last()
        if last is not None:
            self.epoch.first_position, name = last
            self.epoch.start = replace(self.epoch.start, epoch=name)

    WritingConnection.start = start_in_old_epoch  # type: ignore[method-assign]


def key_too_wide() -> None:
    """Include the time of receipt in the fingerprint."""
    from hashlib import blake2b

    from agent.identity import identify

    module: Any = identify
    real = module.fingerprint

    def with_moment(*arguments: Any, **named: Any) -> bytes:
        return blake2b(real(*arguments, **named) + time.time_ns().to_bytes(8, "big"), digest_size=16).digest()

    module.fingerprint = with_moment


def last_of_pack_dropped() -> None:
    """Store all but the last event of a pack, and ack the pack."""
    from agent.store.event_store import EventStore
    from agent.store.port import Submission

    submit = EventStore.submit

    def submit_most(self: EventStore, submission: Submission) -> None:
        if len(submission.candidates) > 1:
            submission = replace(submission, candidates=submission.candidates[:-1])
        submit(self, submission)

    EventStore.submit = submit_most  # type: ignore[method-assign]


def late_event_dropped() -> None:
    """Write fresh events, and drop those that need a look-up."""
    from pyspark.sql import functions as F

    from cloud.table import lookup

    lookup.without_found = lambda survivors, found: survivors.filter(F.col("fresh"))


def receipt_before_commit() -> None:
    """Commit the receipts of a batch before it is logged as planned, and write it later: a kill comes between."""
    from cloud.stream import batch as batches
    from cloud.stream import offsets, receipts

    write, write_or_skip = batches.BatchWriter._write, batches.BatchWriter._write_or_skip

    def receipt_first(self: batches.BatchWriter, survivors: Any, batch: int) -> None:
        planned = self._checkpoint.planned(batch)
        planned = replace(planned, starts=offsets.complete_starts(planned.starts, planned.ends))
        if offsets.compare(planned.starts, planned.ends, self._last) is not offsets.Overlap.COMPLETE:
            epochs = self._log.check(self._last, planned.ends)
            receipts.logger.disabled = True  # the stage that it logs ends the batch
            self._receipts.commit(batches.next_commit(self._last, planned, self._window_seconds, epochs))
            receipts.logger.disabled = False
        write_or_skip(self, survivors, batch)

    def write_later(self: batches.BatchWriter, survivors: Any, planned: Any, overlap: Any) -> Any:
        time.sleep(BEFORE_SECONDS)
        return write(self, survivors, planned, overlap)

    batches.BatchWriter._write_or_skip = receipt_first  # type: ignore[method-assign]
    batches.BatchWriter._write = write_later  # type: ignore[method-assign]


def duplicates_not_dropped_in_the_cloud() -> None:
    """Write every record."""
    from cloud import job
    from cloud.table import id_reuse, lookup

    module: Any = job
    module.drop_duplicates = lambda records, *_: records
    lookup.without_found = lambda survivors, found: survivors
    id_reuse.first_of_each = lambda good: good
