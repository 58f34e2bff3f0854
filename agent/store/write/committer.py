"""Commits: decide a group of submissions, write it in one transaction, and only then update memory and answer."""

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agent.clock import Clock
from agent.release import version
from agent.store.errors import FAILURES
from agent.store.facts import CHECKPOINTS, CLOCK_UNTRUSTED
from agent.store.fingerprints import fingerprint_rows
from agent.store.gateway_events import GatewayCondition, checkpoint, clock_correction, started
from agent.store.gateway_events import gap as gap_event
from agent.store.memory import Memory
from agent.store.port import Candidate, Outcome, Submission
from agent.store.read.section import Section
from agent.store.schema import gaps, tables
from agent.store.schema.gaps import Gap
from agent.store.schema.tables import EpochStart
from agent.store.write.decision import Decision
from agent.store.write.removal import Removal
from agent.store.write.transaction import Transactions
from contract.chain import DIGEST_START
from contract.record import ClockTrust

LABEL_RANGES_MAX: Final = 200
Answers = Sequence[tuple[Submission, Outcome]]

EXPIRED: Final = "expired"
_ID_BYTES: Final = 8
SPACE_MS: Final = 5_000
"""How long new events wait for a removal, such as in a store whose bound was lowered; then they are refused, and the
rest is removed between the requests."""
RETRY_SECONDS: Final = 10
"""When a sensor may try again after the store has failed."""


class Committer:
    """Stores submissions under the current epoch; runs on the writer's thread alone."""

    def __init__(
        self,
        transactions: Transactions,
        removal: Removal,
        gateway: str,
        clock: Clock,
        announce: Callable[[Answers], None],
        state: Callable[[str, int, int], GatewayCondition] = GatewayCondition,
    ) -> None:
        self._transactions = transactions
        self._connection = transactions.connection
        self.removal = removal
        self._gateway = gateway
        self._state = state
        """Returns what the gateway states of itself, given version, new events and written bytes."""
        self._clock = clock
        self._memory = transactions.memory
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
        if decision.duplicates:
            self._note_duplicates(decision, range(decision.first_position))
        states_section = decision.begins_section and self._connection.epoch.first_position is not None
        if not (decision.after_commit or decision.declaration_position or decision.corrections or states_section):
            return
        epoch = self._connection.epoch
        try:
            with self._transactions.begin() as sql:
                write(sql, decision, epoch.start if epoch.first_position is None else None)
        except FAILURES as error:
            epoch.renew()  # labelled rows may be in the log, and in a salvaged image
            self._refuse(decision.after_commit, error)
            return
        remember(self._memory, decision)
        self._connection.note_end()
        if decision.packed:
            epoch.first_position = decision.epoch_first
        if decision.duplicates:
            self._note_duplicates(decision, range(decision.first_position, decision.next_position))
        self._announce(decision.after_commit)

    def give_up(self, first: int, last: int, reason: str) -> None:
        """Make gaps of unreadable or unsendable events that are not yet in one, and declare them.

        Events that were released before they were sent are given up as well. What was given up before an error is
        declared by the next commit.
        """
        self._give_up(self._memory.progress.not_lost(first, last), reason)

    def expire(self, first: int, last: int, lifetime_ms: int) -> int:
        """Make gaps of the first of these events beyond their lifetime; return how many.

        None that a full store has dropped since it was read. Otherwise as `give_up`.
        """
        boundary_ms = self._transactions.service.now_ms() - lifetime_ms
        position = first
        while position <= last and (self._memory.fingerprints.committed_ms(position) or 0) < boundary_ms:
            position += 1
        return self._give_up(self._memory.progress.unprocessed(first, position - 1), EXPIRED)

    def declare(self) -> None:
        """Store the events that declare gaps, corrections of the clock and digests, where any are due."""
        if self._memory.undeclared or self._clock_corrections() or self._is_section_due():
            self.commit(())

    def _give_up(self, ranges: Sequence[tuple[int, int]], reason: str) -> int:
        for first, last in ranges:
            self.removal.give_up(Gap(first, last, reason))
        if ranges:
            self.declare()
        return sum(last - first + 1 for first, last in ranges)

    def _note_duplicates(self, decision: Decision, positions: range) -> None:
        """Count the duplicates of events at these positions, which are on disk."""
        repeated = [position for _, position in decision.duplicates if position in positions]
        self._transactions.duplicates.note(self._clock.wall_ms(), repeated)

    def _decide(self, group: Sequence[Submission]) -> Decision:
        self._connection.ensure_durable()  # a duplicate is acked without a commit
        capacity = self._transactions.capacity
        arriving_bytes = 0
        for submission in group:
            if not submission.refusal:
                for candidate in submission.candidates:
                    arriving_bytes += len(candidate.tail)
        if capacity.has_space_for(arriving_bytes):
            return self._draft(group, "")
        decision = self._draft(group, capacity.refusal())  # duplicates need no space, and nothing is dropped for them
        if not decision.refuses:
            return decision
        begun = self._clock.monotonic_ms()
        while self.removal.make_space():
            if capacity.has_space_for(arriving_bytes):
                return self._draft(group, "")
            if self._clock.monotonic_ms() - begun >= SPACE_MS:
                self.removal.is_behind = True
                break
        return self._draft(group, capacity.refusal())

    def _draft(self, group: Sequence[Submission], refusal: str) -> Decision:
        """Decide a group; with a refusal where there is no space for new events."""
        epoch = self._connection.epoch
        decision = Decision(
            self._memory,
            self._connection.get,
            epoch.start.epoch,
            epoch.first_position or self._memory.end + 1,
            self._clock.monotonic_ms(),
            self._transactions.service.now_ms(),
            epoch.start.boot,
            refusal,
        )
        corrections = self._clock_corrections()
        if epoch.first_position is None:
            previous = self._memory.last_label()
            wall_ms, trust = self._clock.wall_ms(), self._clock.trust()
            closed = self._memory.close_section()
            first = started(self._gateway, epoch.start.epoch, previous, wall_ms, trust, closed, self._condition())
            decision.begin_section(first, self._clock.uptime_ms())
        elif self._is_section_due() and (closed := self._memory.close_section()) is not None:
            wall_ms, trust = self._clock.wall_ms(), self._clock.trust()
            first = checkpoint(self._gateway, secrets.token_hex(_ID_BYTES), closed, wall_ms, trust, self._condition())
            decision.begin_section(first, self._clock.uptime_ms())
        if corrections:
            decision.correct_clock(corrections)
        if self._memory.undeclared:
            for candidate in declarations(self._gateway, self._memory, self._clock):
                decision.declare(candidate, self._clock.uptime_ms())
        for submission in group:
            decision.add(submission)
        return decision

    def _condition(self) -> GatewayCondition:
        new = self._memory.progress.counts(self._memory.first_kept).new
        return self._state(version(), new, self._transactions.wear.bytes)

    def _is_section_due(self) -> bool:
        section = self._memory.section
        if section is None or self._connection.epoch.first_position is None:
            return False
        return section.is_due(self._memory.end, self._clock.monotonic_ms())

    def _clock_corrections(self) -> list[Candidate]:
        """Return the corrections of this boot's acceptances under an untrusted clock, once it is trusted."""
        memory, clock, boot = self._memory, self._clock, self._connection.epoch.start.boot
        if not memory.untrusted_clock.begun or clock.trust() is ClockTrust.UNTRUSTED:
            return []
        wall_ms, uptime_ms = clock.wall_ms(), clock.uptime_ms()
        return [
            clock_correction(
                self._gateway, secrets.token_hex(_ID_BYTES), boot, labels, wall_ms - uptime_ms - offset_ms, wall_ms
            )
            for first, last, offset_ms in memory.untrusted_clock.ranges(boot, memory.end)
            for labels in memory.epochs.label_ranges(first, last)
        ]

    def _refuse(self, answers: Answers, error: Exception) -> None:
        reason = self._transactions.fail(error)
        refused = Outcome(refusal=reason, retry_seconds=RETRY_SECONDS)
        self._announce([(submission, refused) for submission, _ in answers])


def write(connection: sqlite3.Connection, decision: Decision, begins: EpochStart | None) -> None:
    """Write a commit; `begins` is the epoch that starts with it, None where that has begun already."""
    first = decision.first_position
    if decision.rejects:
        tables.insert_rejects(connection, decision.rejects)
    if not decision.packed:
        return
    if begins is not None:
        tables.insert_epoch(connection, first, begins)
    elif decision.begins_section:
        tables.write_fact(connection, CHECKPOINTS, str(tables.read_count(connection, CHECKPOINTS) + 1))
    tables.insert_events(connection, first, decision.packed)
    if decision.declaration_position:
        gaps.declare(connection, decision.declaration_position)
    if decision.untrusted_clock is not decision.memory.untrusted_clock:
        tables.write_fact(connection, CLOCK_UNTRUSTED, decision.untrusted_clock.text())
    keys = decision.retransmission_keys
    fingerprint_rows.insert_fingerprints(connection, first, decision.service_ms, decision.fingerprints, keys)


def remember(memory: Memory, decision: Decision) -> None:
    """Add a commit that is on disk to memory."""
    if decision.rejects:
        memory.rejects.remember(decision.rejects)
    if not decision.packed:
        return
    if decision.epoch_first == decision.first_position:
        memory.epochs.add(decision.first_position, decision.epoch)
    memory.fingerprints.add(decision.first_position, decision.service_ms, b"".join(decision.fingerprints))
    for key, position in decision.retransmission_keys.items():
        memory.retransmissions.remember(key, position, decision.monotonic_ms)
    memory.similar.remember(decision.similarity_keys, decision.monotonic_ms)
    if decision.declaration_position:
        memory.undeclared.clear()
    memory.untrusted_clock = decision.untrusted_clock
    memory.end = decision.next_position - 1
    if decision.begins_section:
        memory.section = Section(decision.first_position, DIGEST_START, decision.monotonic_ms)
    if memory.section is not None:
        memory.section.append(decision.packed)
    memory.progress.advance(memory.end)


def declarations(gateway: str, memory: Memory, clock: Clock) -> Iterator[Candidate]:
    """Yield the gateway.gap events that are due: few, even for many gaps."""
    epochs = memory.epochs
    for reason in dict.fromkeys(gap.reason for gap in memory.undeclared):
        given_up = [gap for gap in memory.undeclared if gap.reason == reason]
        ranges = [labels for gap in given_up if gap.count for labels in epochs.label_ranges(gap.first, gap.last)]
        found_to = max((gap.last for gap in given_up if not gap.count), default=0)
        label = epochs.label(found_to) if epochs.covers(found_to) else None
        for at in range(0, max(len(ranges), 1), LABEL_RANGES_MAX):
            part, id_ = ranges[at : at + LABEL_RANGES_MAX], secrets.token_hex(_ID_BYTES)
            yield gap_event(gateway, id_, reason, part, label, clock.wall_ms(), clock.trust())
