"""The receipts' poller: marks the batches that the table has, and returns those that it will never receive."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from agent.clock import SystemClock
from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.errors import KafkaSettingsError, SessionError, UnsupportedError
from agent.forward.facts import Hold, read_hold
from agent.forward.kafka.attempt import close
from agent.forward.kafka.client import LastError, open_admin, open_reader
from agent.forward.kafka.connect import check_reachable
from agent.forward.kafka.health import UNREACHABLE, UNSUPPORTED
from agent.forward.kafka.login_files import Hours, LoginFiles
from agent.forward.receipts.group_offsets import GroupOffsets
from agent.forward.receipts.round import ROUND_EVENTS, ROUND_SECONDS_MIN, Acked, SharedRound
from agent.forward.receipts.rules import BatchDecision, Rules, Verdict, View, choose_table, decide, is_taken
from agent.forward.receipts.truncation import Decided, Leadership, Resends, overrule, records_to_check
from agent.store.facts import RECEIPTS_HELD, RECEIPTS_TABLE
from agent.store.port import Batch, Outbox, OutboxError
from agent.telemetry.links import LinkName, Links, LinkState

JITTER: Final = 0.1
"""Polls are early or late by up to this share of the interval, so that gateways do not poll together."""
FORWARDED_SECONDS: Final = 0.5
"""How often forwarded batches are marked processed where receipts are disabled."""
FLOWING: Final = LinkState("flowing", up=True)
HELD: Final = LinkState("held", up=False, level=logging.WARNING, logs_each_reason=True)

_log = logging.getLogger(__name__)


def pauses(random: Random, seconds: float) -> Iterator[float]:
    """Yield the pauses before polls, in seconds.

    The first one ends anywhere in the interval: gateways that start together, as after a power cut, do not poll
    together, which the jitter alone would reach only after many polls.
    """
    yield seconds * random.random()
    while True:
        yield seconds * random.uniform(1 - JITTER, 1 + JITTER)


class ReceiptPoller:
    """Marks batches as processed by the processing group's offsets.

    A batch is processed only when in each of its partitions the pinned table has read, without a gap, from its
    lowest to its highest offset of the very topic that it was sent to, and its records have survived any change of
    leader. Any other batch waits, or is sent again.
    """

    def __init__(  # noqa: PLR0913  # its parts
        self,
        kafka: KafkaSettings,
        settings: ReceiptSettings,
        gateway: str,
        outbox: Outbox,
        links: Links,
        random: Random,
        hours: Hours | None = None,
        *,
        shared: SharedRound | None = None,
    ) -> None:
        self._kafka = kafka
        self._gateway = gateway
        self._settings = settings
        self._outbox = outbox
        self._links = links
        self._pauses = pauses(random, settings.poll_seconds)
        self._hours = hours or Hours((), SystemClock())
        self._resends = Resends()
        self._shared = shared or SharedRound(settings.poll_seconds)

    def run(self, stop: threading.Event) -> None:
        """Poll until `stop` is set; blocks, and needs a thread of its own. Raise KafkaSettingsError."""
        if not self._settings.enabled:
            self._process_forwarded(stop)
            return
        open_reader(self._kafka, self._settings.group, LastError())
        while not self._wait(stop):
            if not self._hours.include_now():
                continue
            try:
                self._poll_outstanding(stop)
            except SessionError as error:
                if not stop.is_set():
                    state = UNSUPPORTED if isinstance(error, UnsupportedError) else UNREACHABLE
                    self._links.report(LinkName.RECEIPTS, state, str(error))

    def _poll_outstanding(self, stop: threading.Event) -> None:
        """Poll while batches are forwarded or acked; raise SessionError where no broker answers.

        The clients are open no longer than that: while waiting for a broker they would cost more than all else that an
        idle agent does, and one that has lost a coordinator may never find another.
        """
        acked = self._shared.acked
        state, batches = self._links.state(LinkName.RECEIPTS), self._outbox.forwarded()
        if not (batches or acked.events) and (state is None or state.up or state == HELD):
            if state == HELD:
                self._links.report(LinkName.RECEIPTS, FLOWING)
            self._note_hold("")
            return
        files = LoginFiles(self._kafka, SystemClock())
        with self._group(stop) as group:
            while True:
                self._poll(batches, acked, group, stop)  # without a batch, it ends a trouble that is over
                if self._wait(stop) or files.renewed() or not self._hours.include_now():
                    return
                acked = self._shared.acked  # first: what is confirmed meanwhile is among both
                if not ((batches := self._outbox.forwarded()) or acked.events):
                    return

    def _wait(self, stop: threading.Event) -> bool:
        """Wait until the next poll, or until many events are acked; return whether the agent stops."""
        seconds = next(self._pauses)
        while seconds > ROUND_SECONDS_MIN:
            if stop.wait(ROUND_SECONDS_MIN):
                return True
            if self._shared.acked.events >= ROUND_EVENTS:
                return False
            seconds -= ROUND_SECONDS_MIN
        return stop.wait(seconds)

    @contextmanager
    def _group(self, stop: threading.Event) -> Iterator[GroupOffsets]:
        check_reachable(self._kafka.bootstrap_servers, stop)
        errors = LastError()
        try:
            reader = open_reader(self._kafka, self._settings.group, errors)
            admin = open_admin(self._kafka, errors)
        except KafkaSettingsError as error:  # they could be opened at the start: a file is just being replaced
            raise SessionError(str(error)) from error
        try:
            yield GroupOffsets(admin, reader, self._kafka.topic, errors)
        finally:
            close(reader, stop)

    def _process_forwarded(self, stop: threading.Event) -> None:
        """Mark forwarded batches as processed, since receipts are disabled."""
        while not stop.wait(FORWARDED_SECONDS):
            if batches := self._outbox.forwarded():
                self._outbox.mark_processed(batches)

    def _poll(self, batches: Sequence[Batch], acked: Acked, group: GroupOffsets, stop: threading.Event) -> None:
        """Poll once, have the acked batches confirmed, and apply the verdicts.

        Raise SessionError where no broker answers.
        """
        partitions = {partition for batch in batches for partition in batch.partitions}
        view = group.read_view(partitions | acked.partitions, stop)
        batches = self._shared.confirm(acked, view) or batches
        try:
            pinned = self._outbox.fact(RECEIPTS_TABLE)
            table = choose_table(pinned, view.receipts())
            rules = Rules(table, self._settings.any_commit, self._resends.first_max(time.monotonic()))
            decided = self._checked([(batch, decide(batch, view, rules)) for batch in batches], view, group, stop)
            if table is not None and table != pinned and is_taken(decided, view):
                self._outbox.set_fact(RECEIPTS_TABLE, table)  # before the first receipt of it counts
                _log.info("receipts=pinned table=%s succeeds=%s", table, pinned or "none")
        except OutboxError as error:
            self._links.report(LinkName.RECEIPTS, HELD, str(error))  # only reported: no fact can be written now
            return
        self._resends.note(decided, view, time.monotonic())
        self._apply(decided)

    def _checked(self, decided: Decided, view: View, group: GroupOffsets, stop: threading.Event) -> Decided:
        """Return the decisions after the truncation check of records whose leader has changed."""
        survived: dict[Leadership, bool | None] = {}
        for leadership, batch in records_to_check(decided, view).items():
            label = group.read_label(leadership.partition, batch.partitions[leadership.partition].highest, stop)
            own = self._outbox.labels(batch.first, batch.last)
            survived[leadership] = None if label is None else label.proves(leadership.leader_epoch, self._gateway, own)
        return overrule(decided, view, survived.get)

    def _apply(self, decided: Sequence[tuple[Batch, BatchDecision]]) -> None:
        """Apply the decisions; report held and returned batches, and the end of a hold."""
        processed = [batch for batch, decision in decided if decision.verdict is Verdict.PROCESSED]
        returned = [(batch, decision) for batch, decision in decided if decision.verdict is Verdict.RETURN]
        held = next((decision.reason for _, decision in decided if decision.verdict is Verdict.HOLD), None)
        if processed:
            self._outbox.mark_processed(processed)
        if returned:
            events = sum(batch.last - batch.first + 1 for batch, _ in returned)
            _log.warning(
                "receipts=returned batches=%d events=%d reason=%r", len(returned), events, returned[0][1].reason
            )
            self._outbox.return_batches([batch for batch, _ in returned])
        if held is not None:
            self._links.report(LinkName.RECEIPTS, HELD, held)
        else:
            self._links.report(LinkName.RECEIPTS, FLOWING)
        self._note_hold(held or "")

    def _note_hold(self, reason: str) -> None:
        """Store why receipts are held, or that they are not, unless the disk refuses."""
        with suppress(OutboxError):  # log, status page and metric have it, too
            hold = read_hold(self._outbox.fact(RECEIPTS_HELD))
            if reason == ("" if hold is None else hold.reason):
                return
            since = self._links.reports()[LinkName.RECEIPTS].since if hold is None else hold.since
            self._outbox.set_fact(RECEIPTS_HELD, str(Hold(since, reason)) if reason else "")
