"""The receipts: what the table has may be forgotten, and what it will never have is sent again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from agent.config.settings import KafkaSettings, ReceiptSettings
from agent.forward.errors import KafkaSettingsError, SessionError
from agent.forward.kafka.attempt import close
from agent.forward.kafka.client import LastError, open_admin, open_reader
from agent.forward.kafka.connect import knock
from agent.forward.kafka.health import UNREACHABLE
from agent.forward.receipts.group_offsets import Group
from agent.forward.receipts.hold import Hold, read_hold
from agent.forward.receipts.rules import Decision, Rules, Verdict, View, choose_table, decide
from agent.forward.receipts.truncation import Decided, Reign, overrule, to_read_back
from agent.store.facts import RECEIPTS_HELD, RECEIPTS_TABLE
from agent.store.port import Batch, Outbox, OutboxError
from agent.telemetry.links import LinkName, Links, LinkState

JITTER: Final = 0.1
"""Polls are up to this share early or late, so that gateways do not ask together."""
FORWARDED_SECONDS: Final = 0.5
"""How often forwarded batches are settled where no receipts are awaited."""
FLOWING: Final = LinkState("flowing", up=True)
HELD: Final = LinkState("held", up=False, level=logging.WARNING, logs_each_reason=True)

_log = logging.getLogger(__name__)


class Receipts:
    """Turns the processing group's offsets into processed batches.

    A batch is processed only when in each of its partitions the pinned table has read, without a gap, from its
    lowest to its highest offset of the very topic that it was sent to, and its records have outlived their leader.
    Anything else waits, or is sent again.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: ReceiptSettings,
        gateway: str,
        outbox: Outbox,
        links: Links,
        random: Random,
    ) -> None:
        self._kafka = kafka
        self._gateway = gateway
        self._settings = settings
        self._outbox = outbox
        self._links = links
        self._random = random

    def run(self, stop: threading.Event) -> None:
        """Ask until `stop` is set; blocks, so it wants a thread of its own. Raises KafkaSettingsError."""
        if not self._settings.enabled:
            self._settle_forwarded(stop)
            return
        open_reader(self._kafka, self._settings.group, LastError())
        while not stop.wait(self._pause()):
            try:
                self._ask(stop)
            except SessionError as error:
                if not stop.is_set():
                    self._links.report(LinkName.RECEIPTS, UNREACHABLE, str(error))

    def _ask(self, stop: threading.Event) -> None:
        """Ask as long as something is outstanding; raise SessionError where nobody answers.

        By clients that are open no longer than that: waiting for a broker they would cost more than all else that an
        idle agent does, and one that has lost a coordinator may never find another.
        """
        batches = self._outbox.forwarded()
        if not batches:
            if self._links.state(LinkName.RECEIPTS) == HELD:
                self._links.report(LinkName.RECEIPTS, FLOWING)
            self._note_hold("")
            return
        with self._group(stop) as group:
            while batches:
                self._poll(batches, group, stop)
                if stop.wait(self._pause()):
                    return
                batches = self._outbox.forwarded()

    @contextmanager
    def _group(self, stop: threading.Event) -> Iterator[Group]:
        """Open the clients for the block."""
        knock(self._kafka.bootstrap_servers, stop)
        errors = LastError()
        try:
            reader = open_reader(self._kafka, self._settings.group, errors)
            admin = open_admin(self._kafka, errors)
        except KafkaSettingsError as error:  # they could be opened at the start: a file is just being replaced
            raise SessionError(str(error)) from error
        try:
            yield Group(admin, reader, self._kafka.topic, errors)
        finally:
            close(reader, stop)

    def _pause(self) -> float:
        return self._settings.poll_seconds * self._random.uniform(1 - JITTER, 1 + JITTER)

    def _settle_forwarded(self, stop: threading.Event) -> None:
        """Without receipts, forwarded is done."""
        while not stop.wait(FORWARDED_SECONDS):
            if batches := self._outbox.forwarded():
                self._outbox.mark_processed(batches)

    def _poll(self, batches: Sequence[Batch], group: Group, stop: threading.Event) -> None:
        """Ask once, and do what follows; raise SessionError where nobody answers."""
        view = group.look({partition for batch in batches for partition in batch.partitions}, stop)
        rules = Rules(self._pin(view), self._settings.any_commit)
        decided = [(batch, decide(batch, view, rules)) for batch in batches]
        self._apply(self._checked(decided, view, group, stop))

    def _checked(self, decided: Decided, view: View, group: Group, stop: threading.Event) -> Decided:
        """Read back what a change of leader may have taken."""
        survived: dict[Reign, bool | None] = {}
        for reign, batch in to_read_back(decided, view).items():
            found = group.read_back(reign.partition, batch.partitions[reign.partition].highest, stop)
            labels = self._outbox.labels(batch.first, batch.last)
            survived[reign] = None if found is None else found.proves(reign, self._gateway, labels)
        return overrule(decided, view, survived.get)

    def _pin(self, view: View) -> str | None:
        """Pin the table that gives the receipts: for good, before the first of them counts; None where none can."""
        try:
            pinned = self._outbox.fact(RECEIPTS_TABLE)
            table = choose_table(pinned, view.receipts())
            if table is not None and table != pinned:
                self._outbox.set_fact(RECEIPTS_TABLE, table)
                _log.info("receipts=pinned table=%s succeeds=%s", table, pinned or "none")
        except OutboxError as error:
            self._links.report(LinkName.RECEIPTS, HELD, str(error))  # and nothing more: no fact can be written now
            return None
        return table

    def _apply(self, decided: Sequence[tuple[Batch, Decision]]) -> None:
        """Do what was decided; say what is held or returned, and when that is over."""
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
        """Write down why receipts are held, or that they are not, as far as the disk takes it."""
        with suppress(OutboxError):  # log, status page and metric tell it, too
            hold = read_hold(self._outbox.fact(RECEIPTS_HELD))
            if reason == ("" if hold is None else hold.reason):
                return
            since = self._links.reports()[LinkName.RECEIPTS].since if hold is None else hold.since
            self._outbox.set_fact(RECEIPTS_HELD, str(Hold(since, reason)) if reason else "")
