"""Receipts: whether the group commits, whose table it is, how far it is behind; and pinning another table by hand."""

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from agent.cli.doctor.finding import Finding, fine, warning, wrong
from agent.cli.doctor.kafka import KafkaConnection, check_broker
from agent.cli.failures import CommandError
from agent.clock import SystemClock
from agent.config.lanes import DEFAULT_LANE
from agent.config.settings import ReceiptSettings, Settings
from agent.forward.errors import ForwardError, SessionError
from agent.forward.kafka.attempt import close
from agent.forward.kafka.client import open_reader
from agent.forward.receipts.group_offsets import GroupOffsets
from agent.forward.receipts.rules import Rules, View, choose_table, objection
from agent.status import GatewayStatus
from agent.store.errors import StoreError
from agent.store.facts import RECEIPTS_TABLE
from agent.store.files import use_mark
from agent.store.lanes import lane_stores
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database
from agent.terminal import count, duration

OUTSTANDING_SECONDS_MAX = 3_600
"""How long an event may wait for its receipt without a warning."""


def read_group(connection: KafkaConnection, settings: ReceiptSettings, partitions: int) -> View:
    """Return the view of the group's offsets; raise SessionError."""
    kafka = connection.settings
    stop = threading.Event()
    reader = open_reader(kafka, settings.group, connection.errors)
    try:
        return GroupOffsets(connection.admin, reader, kafka.topic, connection.errors).read_view(range(partitions), stop)
    finally:
        close(reader, stop)


def check_receipts(
    connection: KafkaConnection, settings: ReceiptSettings, partitions: int, status: GatewayStatus | None, now: int
) -> Iterator[Finding]:
    """Check the receipts; `status` is None where there is no store yet."""
    if not settings.enabled:
        yield fine("receipts", "receipts.enabled = false: forwarded events count as processed")
        return
    try:
        view = read_group(connection, settings, partitions)
    except SessionError as error:
        hint = f"grant DESCRIBE on group {settings.group} and on the topic: docs/kafka.md"
        yield wrong("group", f"group {settings.group}: {error}", hint)
        return
    yield judge_receipts(view, settings, None if status is None else status.table)
    if status is not None:
        yield check_outstanding(status, now)


def judge_receipts(view: View, settings: ReceiptSettings, pinned: str | None) -> Finding:
    """Check the group's commits by the rules of the agent."""
    committed = {number: seen for number, seen in view.partitions.items() if seen.committed is not None}
    lag = sum((seen.log_end or 0) - (seen.committed or 0) for seen in committed.values())
    group = f"group {settings.group}"
    if not committed:
        return warning("group", f"{group} has committed nothing yet", "start the cloud's job: docs/operations.md")
    rules = Rules(choose_table(pinned, view.receipts()), settings.any_commit)
    reasons = (objection(number, seen, view.topic_id, rules) for number, seen in sorted(committed.items()))
    if reason := next(filter(None, reasons), ""):
        hint = (
            "docs/receipts.md has each reason: the job's next commit, within the hour, corrects those that no other "
            "consumer causes; a new table that is right needs its job's --succeeds; or stop the agent, then oncegate "
            "doctor --repin"
        )
        return wrong("group", f"{group}: {reason}", hint)
    has_receipt = any(seen.receipt is not None for seen in committed.values())
    named = f"of table {rules.table}" if has_receipt else "of a foreign consumer (receipts.any_commit)"
    return fine("group", f"{group}: receipts {named}, {count(max(lag, 0), 'offset')} behind")


def check_outstanding(status: GatewayStatus, now: int) -> Finding:
    """Check how long the oldest event has waited."""
    waiting = status.events.new + status.events.forwarded
    if status.oldest_unprocessed is None:
        return fine("receipts", "no event awaits its receipt")
    seconds = max(0, now - status.oldest_unprocessed) / 1000
    text = f"{count(waiting, 'event')} await their receipt, the oldest for {duration(seconds)}"
    if status.receipts_held:
        return warning("receipts", f"{text}; held: {status.receipts_held}", "docs/receipts.md has each reason")
    if seconds > OUTSTANDING_SECONDS_MAX:
        at = "the cloud's job" if status.events.forwarded >= status.events.new else "Kafka"
        return warning("receipts", text, f"check {at} first")
    return fine("receipts", text)


def repin(settings: Settings) -> tuple[str | None, str]:
    """Pin the table whose receipts the group has now; return the old table and the new one; raise CommandError."""
    table = _table(settings)
    folder = settings.gateway.state_dir
    if not (folder / FILE_NAME).exists() and not use_mark.lacks_file(folder / FILE_NAME):
        raise CommandError("there is no store yet: the agent pins the table of its first receipt")
    if database.in_use(folder / FILE_NAME):
        raise CommandError("the agent runs, and it alone writes to its store: systemctl stop oncegate, then try again")
    _become_owner(folder)
    try:
        return asyncio.run(_pin(settings, table)), table
    except (StoreError, OutboxError) as error:
        raise CommandError(str(error)) from error


def _table(settings: Settings) -> str:
    connection = KafkaConnection.open(settings.kafka)
    finding, topic = check_broker(connection)
    if topic is None:
        raise CommandError(finding.text)
    try:
        view = read_group(connection, settings.receipts, len(topic.partitions))
    except ForwardError as error:
        raise CommandError(str(error)) from error
    tables = {receipt.table for receipt in view.receipts()}
    if len(tables) != 1:
        objections = (objection(number, seen, view.topic_id, Rules(None)) for number, seen in view.partitions.items())
        reason = next(filter(None, objections), "nothing is committed")
        found = f"receipts of {', '.join(sorted(tables))}" if tables else f"no receipt that counts ({reason})"
        raise CommandError(f"group {settings.receipts.group} has {found}: expected those of one table")
    return tables.pop()


async def _pin(settings: Settings, table: str) -> str | None:
    """Pin the table in each lane; return that of the default lane before."""
    async with lane_stores(settings, SystemClock()) as stores:
        before = await asyncio.to_thread(stores.outboxes[DEFAULT_LANE].fact, RECEIPTS_TABLE)
        for outbox in stores.outboxes.values():
            await asyncio.to_thread(outbox.set_fact, RECEIPTS_TABLE, table)
    return before


def _become_owner(folder: Path) -> None:
    """Become the folder's owner where root runs this, so that the agent can still write to its files."""
    owner = folder.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
