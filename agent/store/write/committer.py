"""Commits: decide a group of submissions, write it in one transaction, and only then make it known and answer.

Runs on the writer's thread alone.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.clock import Clock
from agent.config.settings import StoreSettings
from agent.store.errors import FAILURES, is_damage
from agent.store.facts import WRITE_TRIAL
from agent.store.files.use_mark import UseMark
from agent.store.gateway_events import started
from agent.store.memory import Memory, begin
from agent.store.port import Outcome, Submission
from agent.store.schema import database, tables
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import Opening
from agent.store.write import content
from agent.store.write import release as letting_go
from agent.store.write.capacity import Room
from agent.store.write.decision import Decision
from agent.store.write.declaration import declarations
from agent.store.write.transaction import Transactions

log = logging.getLogger(__name__)

Answers = Sequence[tuple[Submission, Outcome]]

RETRY_SECONDS = 10
"""When a sensor may try again after the store has failed."""
_CANNOT_WRITE = "the store cannot write: "


class Committer:
    """The writing connection and the epoch of this opening."""

    def __init__(
        self,
        path: Path,
        connect: database.Connect,
        settings: StoreSettings,
        gateway: str,
        clock: Clock,
        memory: Memory,
        announce: Callable[[Answers], None],
    ) -> None:
        self._path = path
        self._gateway = gateway
        self._clock = clock
        self._memory = memory
        self._mark = UseMark(path, clock.boot())
        self._announce = announce
        self._room = Room(path, settings, memory, self.connection)
        memory.fingerprints.connection = self.connection
        self._opening: Opening | None = None
        self._epoch_first = 0
        """Position of the epoch's first event; 0 while nothing of this opening is committed."""
        self._service_before = memory.service
        self._opened_at = clock.monotonic_ms()
        self._transactions = Transactions(path, connect, memory, self.service, self._begin_epoch)
        self.copies = self._transactions.copies
        self.damaged: Callable[[BaseException], None] = lambda _: None
        """Is told of an error that means a damaged file."""
        self.forgotten: Callable[[], None] = lambda: None
        """Is told when events are forgotten, so that their resend is stored as new."""
        self._failing = ""
        self.wear = self._transactions.wear
        self.durations = self._transactions.durations

    def open(self, connection: sqlite3.Connection) -> None:
        """Take the connection, under a new epoch."""
        self._transactions.open(connection)
        try:
            self._transactions.ensure_durable()
        except OSError as error:
            log.error("store=failing reason=%r effect=%r", str(error), "nothing is acked before the log is flushed")

    def note_wear(self) -> None:
        """Write how much was written: at the end, when no more transactions come to carry it."""
        self.transact(lambda connection: self.wear.note(connection, self.service(), at_once=True))

    def write_back(self) -> None:
        """Bring all into the file itself, which then needs no log."""
        if database.empty_log(self.connection()):
            self._mark.remove()

    def close(self) -> None:
        """Close the connection."""
        if self._transactions.close():
            self._mark.remove()
        self._mark.close()

    def service(self) -> int:
        """Count the milliseconds that the service has run in all its life: a clock that no one can set."""
        return self._service_before + self._clock.monotonic_ms() - self._opened_at

    def commit(self, group: Sequence[Submission]) -> None:
        """Store a group in one transaction and answer each of it."""
        try:
            decision = self._decide(group)
        except FAILURES as error:
            self._refuse([(submission, Outcome()) for submission in group], error)
            return
        if decision.at_once:
            self._announce(decision.at_once)
        self.copies.add(len(decision.duplicates))
        self._note(decision, range(decision.first_position))
        if not decision.after_commit and not decision.declares:
            return
        try:
            self.transact(lambda connection: self._write(connection, decision))
        except FAILURES as error:
            self._refuse(decision.after_commit, error)
            return
        content.make_known(self._memory, decision, self.service())
        self._mark.note(self._memory.end, self._transactions.log_round)
        if decision.packed:
            self._epoch_first = decision.epoch_first
        self._note(decision, range(decision.first_position, decision.next_position))
        self._announce(decision.after_commit)

    def give_up(self, gap: Gap) -> None:
        """Forget what cannot be read any more, and say so in an event; raise with nothing changed."""
        self._give_up(gap)
        self.declare()

    def release(self, first: int, last: int, note: tuple[str, str]) -> None:
        """Be done with events for good, with a fact in the same transaction, and purge them."""
        letting_go.release(self.transact, self._memory, first, last, note)
        if (processed_to := self._room.purgeable()) is not None:
            self.purge(processed_to)

    def epoch(self) -> str:
        """Return the epoch of this opening, whether or not anything is stored under it."""
        assert self._opening is not None
        return self._opening.epoch

    def purge(self, up_to: int) -> None:
        """Delete the commits all of whose events lie at or below this position."""
        self.transact(lambda connection: tables.delete_events(connection, up_to))
        self._memory.first_kept = up_to + 1

    def _give_up(self, gap: Gap) -> None:
        letting_go.give_up(self.transact, self._memory, gap)
        self.forgotten()

    def declare(self) -> None:
        """Store the events that say what is given up, where there are any to come."""
        if self._memory.undeclared:
            self.commit(())

    def transact(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """Run one transaction, which also carries what the marks have pending; raise with nothing written."""
        self._room.check_log()
        self._transactions.run(write)
        if self._failing:
            log.warning("store=recovered")
            self._failing = ""

    def trouble(self, *, trial: bool = False) -> str:
        """Return why no event can be stored now, empty where one can: after a failure once a write succeeds."""
        try:
            if self._failing or trial:
                self.transact(lambda connection: tables.write_fact(connection, WRITE_TRIAL, str(self._clock.wall_ms())))
            return self._room.refusal() if self._room.stays_full() else ""
        except FAILURES as error:
            self.report(error)
            return f"{_CANNOT_WRITE}{error}"

    def may_tidy(self, *, grows: bool) -> bool:
        """Whether there is room for work that can wait; what does not let the file grow waits for a held log only."""
        return (not grows and not self._room.is_log_held) or self._room.is_ample()

    def watch_log(self) -> None:
        """Empty the log where it has grown beyond what is expected."""
        self._room.watch_log()

    def connection(self) -> sqlite3.Connection:
        """Return the writing connection; open it anew, under a new epoch, where an error has closed it."""
        return self._transactions.connection()

    def report(self, error: Exception) -> None:
        """Take no more transactions, and ask for a salvage, where an error means damage."""
        if is_damage(error):
            self._transactions.lose_if_damaged(error)
            self.damaged(error)

    def _begin_epoch(self) -> None:
        self._epoch_first = 0
        self._opening = begin(self._clock, self.service())
        self._mark.note(self._memory.end, self._transactions.log_round)  # a log that is empty may begin any round

    def _note(self, decision: Decision, positions: range) -> None:
        """Note the copies of events at these positions: only what is on disk can be repeated."""
        self.copies.note(self._clock.wall_ms(), [place for _, place in decision.duplicates if place in positions])

    def _decide(self, group: Sequence[Submission]) -> Decision:
        self._transactions.ensure_durable()  # a copy is acked without a commit
        arriving_bytes = sum(len(candidate.tail) for submission in group for candidate in submission.candidates)
        if not self._room.is_full(arriving_bytes):
            return self._draft(group, "")
        decision = self._draft(group, self._room.refusal())  # copies need no room, and nothing is dropped for them
        if not decision.refuses:
            return decision
        while self._make_room():
            if not self._room.is_full(arriving_bytes):
                return self._draft(group, "")
        return self._draft(group, self._room.refusal())

    def _draft(self, group: Sequence[Submission], refusal: str) -> Decision:
        """Decide a group; with a refusal where new events have no room."""
        memory = self._memory
        assert self._opening is not None
        first = memory.end + 1
        monotonic = self._clock.monotonic_ms()
        decision = Decision(
            epoch=self._opening.epoch,
            epoch_first=self._epoch_first or first,
            first_position=first,
            monotonic=monotonic,
            refusal=refusal,
            known=memory.fingerprints,
            epochs=memory.epochs,
            proofs_known=memory.proofs,
            likenesses_known=memory.likenesses,
            rejections_known=memory.rejections,
        )
        if not self._epoch_first:
            decision.add_new(
                started(self._gateway, decision.epoch, memory.last_label(), self._clock.wall_ms(), self._clock.trust())
            )
        for candidate in declarations(self._gateway, memory, self._clock):
            decision.declares = decision.next_position
            decision.add_new(candidate)
        for submission in group:
            decision.add(submission)
        return decision

    def _make_room(self) -> bool:
        """Delete what may leave first; False where nothing may."""
        if (processed_to := self._room.purgeable()) is not None:
            self.purge(processed_to)
        elif dropped := self._room.droppable():
            for gap in dropped:
                self._give_up(gap)
            self.purge(dropped[-1].last)
            log.warning("store=full dropped=%d", sum(gap.count for gap in dropped))
        else:
            return False
        return True

    def _write(self, connection: sqlite3.Connection, decision: Decision) -> None:
        begins = None if self._epoch_first else self._opening
        content.write(connection, decision, begins, self.service())

    def _refuse(self, answers: Answers, error: Exception) -> None:
        reason = f"{_CANNOT_WRITE}{error}"
        if reason != self._failing:
            log.error("store=failing reason=%r", reason)
            self._failing = reason
        self.report(error)
        self._announce(
            [(submission, Outcome(refusal=reason, retry_seconds=RETRY_SECONDS)) for submission, _ in answers]
        )
