"""Pins another table by hand: from then on only its receipts count."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agent.cli.doctor import kafka, receipts
from agent.clock import SystemClock
from agent.config.lanes import DEFAULT_LANE
from agent.config.settings import Settings
from agent.forward.errors import ForwardError
from agent.forward.receipts.rules import Rules, objection
from agent.store.errors import StoreError
from agent.store.facts import RECEIPTS_TABLE
from agent.store.files import use_mark
from agent.store.lanes.stores import lane_stores
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database


class RepinError(Exception):
    """No table can be pinned; the message has the remedy."""


def repin(settings: Settings) -> tuple[str | None, str]:
    """Pin the table whose receipts the group has now; return the old table and the new one; raise RepinError."""
    table = _table(settings)
    folder = settings.gateway.state_dir
    if not (folder / FILE_NAME).exists() and not use_mark.lacks_file(folder / FILE_NAME):
        raise RepinError("there is no store yet: the agent pins the table of its first receipt")
    if database.in_use(folder / FILE_NAME):
        raise RepinError("the agent runs, and it alone writes to its store: systemctl stop oncegate, then try again")
    _become_owner(folder)
    try:
        return asyncio.run(_pin(settings, table)), table
    except (StoreError, OutboxError) as error:
        raise RepinError(str(error)) from error


def _table(settings: Settings) -> str:
    connection = kafka.KafkaConnection.open(settings.kafka)
    finding, topic = kafka.check_broker(connection)
    if topic is None:
        raise RepinError(finding.text)
    try:
        view = receipts.read_group(connection, settings.receipts, len(topic.partitions))
    except ForwardError as error:
        raise RepinError(str(error)) from error
    tables = {receipt.table for receipt in view.receipts()}
    if len(tables) != 1:
        objections = (objection(number, seen, view.topic_id, Rules(None)) for number, seen in view.partitions.items())
        reason = next(filter(None, objections), "nothing is committed")
        found = f"receipts of {', '.join(sorted(tables))}" if tables else f"no receipt that counts ({reason})"
        raise RepinError(f"group {settings.receipts.group} has {found}: expected those of one table")
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
