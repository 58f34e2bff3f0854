"""A busy forwarder stands aside while sensors' events are written, and works while they are flushed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.store import database
from agent.store.right_of_way import RightOfWay
from contract.event import Event
from tests.store.stores import HandClock, accept, batch, make_store, nearly_full, stored_events, submit

SECONDS_MAX = 20.0


class Halting(sqlite3.Connection):
    """Halts before a statement that begins like this, until told to go on."""

    at = ""
    reached = threading.Event()
    go_on = threading.Event()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if Halting.at and sql.startswith(Halting.at):
            Halting.at = ""
            Halting.reached.set()
            assert Halting.go_on.wait(SECONDS_MAX)
        return super().execute(sql, *parameters)


@pytest.mark.parametrize(
    ("statement", "waits"), [("INSERT INTO events", True), ("INSERT INTO fingerprints", True), ("COMMIT", False)]
)
async def test_who_gives_way_waits_for_the_writing_and_not_for_the_flush(
    tmp_path: Path, clock: HandClock, statement: str, waits: bool
) -> None:
    def connect(path: Path) -> sqlite3.Connection:
        return database.open_for_service(path, Halting)

    async with make_store(tmp_path, clock, connect=connect) as store:
        await accept(store, clock, Event("d", id=1))
        Halting.reached.clear()
        Halting.go_on.clear()
        Halting.at = statement
        sent = asyncio.ensure_future(submit(store, clock, Event("d", id=2)))
        assert await asyncio.to_thread(Halting.reached.wait, SECONDS_MAX)
        passed = threading.Event()

        def give() -> None:
            store.give_way()
            passed.set()

        giving = threading.Thread(target=give)
        giving.start()
        assert await asyncio.to_thread(passed.wait, 0.2 if waits else SECONDS_MAX) is not waits
        Halting.go_on.set()
        assert await asyncio.to_thread(passed.wait, SECONDS_MAX)
        giving.join()
        assert (await sent).accepted == 1


async def test_deciding_may_make_room_in_a_transaction_of_its_own(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_full(monkeypatch)
    async with make_store(tmp_path, clock, max_bytes=400_000, keep_processed_seconds=10**9) as store:
        for number in range(200):
            outcome = await submit(store, clock, Event("d", id=number, data={"text": "x" * 4000}))
            if outcome.refusal:
                store.mark_forwarded(batch(1, stored_events(store)[-1].position))
                store.mark_processed(store.forwarded())
                break
        assert (await accept(store, clock, Event("d", id=1000))).accepted == 1


def test_a_writer_that_fails_leaves_the_way_free() -> None:
    way = RightOfWay()
    with pytest.raises(ValueError, match="disk"), way:
        raise ValueError("disk")
    threads = [threading.Thread(target=way.give) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
