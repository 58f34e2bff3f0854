"""Closing a store: damage detected then is declared as usual, and a log that was written back is no loss."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent.store.errors import DamagedStoreError
from agent.store.files import use_mark
from agent.store.layout import FILE_NAME
from agent.store.schema import database
from contract.event import Event
from tests.agent.store.faults.test_log_taken_away import (
    LOG,
    TEXT,
    damage_met,
    ids,
    make_anew,
    overwrite,
    remove,
    replace,
    shorten,
    truncate,
)
from tests.agent.store.stores import HandClock, accept, make_store, stored_events, write_back


@pytest.mark.guarantee(7)
@pytest.mark.parametrize("take_away", [truncate, shorten, remove, replace, overwrite, make_anew])
async def test_a_log_that_was_taken_away_before_the_end_is_no_silent_loss(
    tmp_path: Path, clock: HandClock, take_away: Callable[[Path], None]
) -> None:
    async with make_store(tmp_path, clock) as store:
        for number in range(10):
            await accept(store, clock, Event("d", id=number, data={"text": TEXT}))
        write_back(store)
        for number in range(10, 20):
            await accept(store, clock, Event("d", id=number, data={"text": TEXT}))
        take_away(tmp_path / LOG)
    assert isinstance(damage_met(store), DamagedStoreError)
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, Event("d", id=20))
        assert b"gateway.gap" in b"".join(event.tail for event in stored_events(store))
        kept = range(20) if take_away in (remove, replace, make_anew) else range(10)
        assert set(ids(store)) >= {*kept, 20}


@pytest.mark.guarantee(7)
async def test_a_reader_that_ends_between_the_last_checkpoint_and_the_last_close_leaves_no_suspicion(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[sqlite3.Connection] = []

    class Outlived(sqlite3.Connection):
        """The reader ends after it has kept the log from being emptied."""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *parameters)
            if readers and sql == "PRAGMA wal_checkpoint(TRUNCATE)":
                readers.pop().close()
            return cursor

    monkeypatch.setattr(database, "empty_log", partial(database.empty_log, wait_ms=50))
    async with make_store(tmp_path, clock, connect=lambda path: database.open_for_service(path, Outlived)) as store:
        await accept(store, clock, Event("d", id=0))
        readers.append(database.open_for_reading(tmp_path / FILE_NAME))
        readers[0].execute("BEGIN")
        readers[0].execute("SELECT count(*) FROM events").fetchone()
    assert not readers
    assert not (tmp_path / LOG).exists()
    assert use_mark.noted(tmp_path / FILE_NAME) is None
    clock.boot_name = "boot-2"
    async with make_store(tmp_path, clock) as store:
        await accept(store, clock, Event("d", id=1))
        assert not any(b"gateway.gap" in event.tail for event in stored_events(store))
