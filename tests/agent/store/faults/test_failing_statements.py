"""Every SQL statement of the service fails once: its caller is refused or retries, and nothing is lost."""

import logging
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.store.event_store import EventStore
from agent.store.layout import FILE_NAME
from agent.store.port import Reject
from agent.store.recovery.verify import verify
from agent.store.schema import database
from contract.event import Event
from tests.agent.store.stores import (
    HandClock,
    accept,
    batch,
    make_store,
    nearly_full,
    stored_events,
    submit,
    take_turns,
)

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
EVENTS = 34


STATEMENTS = (
    "BEGIN",
    "SELECT (page_count",
    "INSERT INTO events",
    "INSERT INTO fingerprints",
    "INSERT INTO rejected",
    "INSERT OR REPLACE INTO sealed",
    "INSERT OR REPLACE INTO segments",
    "INSERT OR REPLACE INTO batches",
    "INSERT INTO processed",
    "UPDATE fingerprints",
    "COMMIT",
)
"""Statements that must have failed; all other executed ones fail in turn, too."""
AFTER_A_FAILURE = (("COMMIT", "INSERT INTO epochs"), ("INSERT OR REPLACE INTO segments", "DELETE FROM sealed"))
"""Statements that are executed only once another one has failed."""


class Watching(sqlite3.Connection):
    """Records the executed statements, and fails at the first with each of the given beginnings, one after another."""

    seen: ClassVar[dict[str, None]] = {}
    faults: ClassVar[list[str]] = []
    hit: ClassVar[set[str]] = set()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._touch(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        self._touch(sql)
        return super().executemany(sql, parameters)

    def _touch(self, sql: str) -> None:
        kind = type(self)
        begin = beginning(sql)
        kind.seen[begin] = None
        if kind.faults and begin.startswith(kind.faults[0]):
            kind.hit.add(kind.faults.pop(0))
            raise sqlite3.OperationalError("disk I/O error")


def beginning(sql: str) -> str:
    """Return the part of a statement that identifies it."""
    return " ".join(sql.split())[:60]


async def work(store: EventStore, clock: HandClock, first: int, acked: set[int]) -> None:
    """Send, be refused, forward, receive receipts, purge, seal, drop; after any failure, the sensor sends again."""
    reject = Reject(DEVICE, "coap", clock.wall_ms(), "NaN", b"raw")
    for number in range(first, first + EVENTS):
        for _ in range(5):
            outcome = await submit(
                store, clock, Event(DEVICE, id=number), rejects=(reject,) if number % 9 == 0 else (), key=None
            )
            if not outcome.refusal:
                break
        assert not outcome.refusal, "the store does not recover"
        acked.add(number)
        await accept(store, clock, Event(DEVICE, id=first))
        clock.pass_seconds(7)
        if number % 8 == 0 and (events := store.outbox.read(0, 5, 1 << 20)):
            store.outbox.mark_forwarded(batch(events[0].position, events[-1].position))
            store.outbox.mark_processed(store.outbox.forwarded()[:1])
    take_turns(store, 80)


@pytest.mark.guarantee(1)
@pytest.mark.heavy
async def test_any_statement_may_fail_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, clock: HandClock
) -> None:
    caplog.set_level(logging.CRITICAL)
    nearly_full(monkeypatch)

    class Here(Watching):
        seen: ClassVar[dict[str, None]] = {}
        hit: ClassVar[set[str]] = set()

    settings: dict[str, Any] = {"segment_events": 16, "keep_processed_seconds": 10**9, "retention_seconds": 10**6}

    def connect(path: Path) -> sqlite3.Connection:
        return database.open_for_service(path, Here)

    async with make_store(tmp_path / "whole", clock, connect=connect, **settings) as store:
        opened = len(Here.seen)
        await work(store, clock, 1, set())
    statements = [sql for sql in list(Here.seen)[opened:] if sql != "ROLLBACK"]
    acked: set[int] = set()
    async with make_store(tmp_path / "failing", clock, connect=connect, **settings) as store:
        for number, faults in enumerate([*((one,) for one in statements), *AFTER_A_FAILURE]):
            Here.faults = [*faults]
            await work(store, clock, 1 + number * EVENTS, acked)
            Here.faults = []
            assert not store.failed.done(), faults
        clock.pass_seconds(60)
        for number in sorted(acked):
            assert (await accept(store, clock, Event(DEVICE, id=number))).duplicates == 1, number
        labels = [event.label for event in stored_events(store)]
        assert len(set(labels)) == len(labels)
    expected = (*STATEMENTS, *(last for _, last in AFTER_A_FAILURE))
    assert not [one for one in expected if not any(sql.startswith(one) for sql in Here.hit)]
    assert not verify(tmp_path / "failing" / FILE_NAME).findings
