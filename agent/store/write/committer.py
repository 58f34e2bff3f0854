"""Commits: decide a group of submissions, write it in one transaction, and only then update memory and answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from agent.clock import Clock
from agent.release import version
from agent.store.errors import FAILURES
from agent.store.gateway_events import GatewayCondition, checkpoint, started
from agent.store.memory import Memory
from agent.store.port import Candidate, Outcome, Submission
from agent.store.schema.gaps import Gap
from agent.store.write import content
from agent.store.write.decision import Decision
from agent.store.write.declaration import clock_corrections, declarations
from agent.store.write.write_path import WritePath
from contract.record import ClockTrust

Answers = Sequence[tuple[Submission, Outcome]]

EXPIRED: Final = "expired"
_ID_BYTES: Final = 8
RETRY_SECONDS: Final = 10
"""When a sensor may try again after the store has failed."""


class Committer:
    """Stores submissions under the current epoch; runs on the writer's thread alone."""

    def __init__(
        self,
        path: WritePath,
        gateway: str,
        clock: Clock,
        memory: Memory,
        announce: Callable[[Answers], None],
        lane: str = "",
        settings_hash: str = "",
    ) -> None:
        self._path = path
        self._gateway = gateway
        self._lane = lane
        self._settings_hash = settings_hash
        self._clock = clock
        self._memory = memory
        self._announce = announce

    def commit(self, group: Sequence[Submission]) -> None:
        """Store a group in one transaction and answer each of its submissions."""
        try:
            decision = self._decide(group)
        except FAILURES as error:
            self._refuse([(submission, Outcome()) for submission in group], error)
            return
        if decision.at_once:
            self._announce(decision.at_once)
        self._note_duplicates(decision, range(decision.first_position))
        states_section = decision.begins_section and self._path.epoch.first_position is not None
        if not (decision.after_commit or decision.declares or decision.corrections or states_section):
            return
        try:
            self._write(decision)
        except FAILURES as error:
            self._path.epoch.renew()  # labelled rows may be in the log, and a salvaged image of the card may hold them
            self._refuse(decision.after_commit, error)
            return
        content.remember(self._memory, decision, self._path.service.now_ms())
        self._path.connection.note_end()
        if decision.packed:
            self._path.epoch.first_position = decision.epoch_first
        self._note_duplicates(decision, range(decision.first_position, decision.next_position))
        self._announce(decision.after_commit)

    def give_up(self, first: int, last: int, reason: str) -> None:
        """Make gaps of unreadable or unsendable events, and declare them; none of what is in a gap already.

        Events that were released before they were sent are given up as well. What was given up before an error is
        declared by the next commit.
        """
        self._give_up(self._memory.progress.not_lost(first, last), reason)

    def expire(self, first: int, last: int, lifetime_ms: int) -> int:
        """Make gaps of the events from a position on that are older than a service time; return how many.

        None that a full store has dropped since it was read. Otherwise as `give_up`.
        """
        boundary_ms = self._path.service.now_ms() - lifetime_ms
        position = first
        while position <= last and (self._memory.fingerprints.committed_ms(position) or 0) < boundary_ms:
            position += 1
        return self._give_up(self._memory.progress.unprocessed(first, position - 1), EXPIRED)

    def declare(self) -> None:
        """Store the events that declare gaps, corrections of the clock and digests, where any are due."""
        corrections = self._clock_corrections(self._path.epoch.start.boot)
        if self._memory.undeclared or corrections or self._is_section_due():
            self.commit(())

    def _give_up(self, ranges: Sequence[tuple[int, int]], reason: str) -> int:
        for first, last in ranges:
            self._path.removal.give_up(Gap(first, last, reason))
        if ranges:
            self.declare()
        return sum(last - first + 1 for first, last in ranges)

    def _note_duplicates(self, decision: Decision, positions: range) -> None:
        """Count the duplicates of events at these positions, which are on disk."""
        repeated = [position for _, position in decision.duplicates if position in positions]
        self._path.duplicates.note(self._clock.wall_ms(), repeated)

    def _decide(self, group: Sequence[Submission]) -> Decision:
        self._path.connection.ensure_durable()  # a duplicate is acked without a commit
        capacity = self._path.capacity
        arriving_bytes = sum(len(candidate.tail) for submission in group for candidate in submission.candidates)
        if not capacity.is_full(arriving_bytes):
            return self._draft(group, "")
        decision = self._draft(group, capacity.refusal())  # duplicates need no space, and nothing is dropped for them
        if not decision.refuses:
            return decision
        while self._path.removal.make_space():
            if not capacity.is_full(arriving_bytes):
                return self._draft(group, "")
        return self._draft(group, capacity.refusal())

    def _draft(self, group: Sequence[Submission], refusal: str) -> Decision:
        """Decide a group; with a refusal where there is no space for new events."""
        epoch = self._path.epoch
        decision = Decision(
            self._memory,
            self._path.connection.get,
            epoch.name,
            epoch.first_position or self._memory.end + 1,
            self._clock.monotonic_ms(),
            epoch.start.boot,
            refusal,
        )
        corrections = self._clock_corrections(epoch.start.boot)
        if epoch.first_position is None:
            previous = self._memory.last_label()
            wall_ms, trust = self._clock.wall_ms(), self._clock.trust()
            closed = self._memory.close_section()
            first = started(self._gateway, epoch.name, previous, wall_ms, trust, closed, self._condition())
            decision.begin_section(first, self._clock.uptime_ms())
        elif self._is_section_due() and (closed := self._memory.close_section()) is not None:
            wall_ms, trust = self._clock.wall_ms(), self._clock.trust()
            first = checkpoint(self._gateway, secrets.token_hex(_ID_BYTES), closed, wall_ms, trust, self._condition())
            decision.begin_section(first, self._clock.uptime_ms())
        decision.correct_clock(corrections)
        for candidate in declarations(self._gateway, self._memory, self._clock):
            decision.declare(candidate, self._clock.uptime_ms())
        for submission in group:
            decision.add(submission)
        return decision

    def _condition(self) -> GatewayCondition:
        new = self._memory.progress.counts(self._memory.first_kept)[0]
        return GatewayCondition(version(), new, self._path.transactions.wear.bytes, self._lane, self._settings_hash)

    def _is_section_due(self) -> bool:
        section = self._memory.section
        if section is None or self._path.epoch.first_position is None:
            return False
        return section.is_due(self._memory.end, self._clock.monotonic_ms())

    def _clock_corrections(self, boot: str) -> list[Candidate]:
        """Return the events that declare what was accepted in this boot before the clock was trusted, once it is."""
        if not self._memory.untrusted_clock.begun or self._clock.trust() is ClockTrust.UNTRUSTED:
            return []
        return clock_corrections(self._gateway, boot, self._memory, self._clock)

    def _write(self, decision: Decision) -> None:
        epoch = self._path.epoch
        self._path.transactions.run(
            lambda connection: content.write(
                connection,
                decision,
                epoch.start if epoch.first_position is None else None,
                self._path.service.now_ms(),
            )
        )

    def _refuse(self, answers: Answers, error: Exception) -> None:
        reason = self._path.transactions.fail(error)
        refused = Outcome(refusal=reason, retry_seconds=RETRY_SECONDS)
        self._announce([(submission, refused) for submission, _ in answers])
