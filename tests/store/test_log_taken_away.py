"""The write-ahead log is truncated or removed under a store that serves: nothing is acked into the void."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.store import database
from contract.event import Event
from tests.store.stores import HandClock, accept, make_store, stored_events

LOG = f"{database.FILE_NAME}-wal"
TEXT = "x" * 3_000


def truncate(log: Path) -> None:
    os.truncate(log, 0)


def remove(log: Path) -> None:
    log.unlink()


def replace(log: Path) -> None:
    log.rename(log.with_name("gone"))
    log.write_bytes(log.with_name("gone").read_bytes())


def overwrite(log: Path) -> None:
    with log.open("r+b") as file:
        file.write(bytes(100))


@pytest.mark.parametrize("take_away", [truncate, remove, replace, overwrite])
async def test_what_comes_after_the_log_is_gone_is_refused_and_stored_by_its_resend(
    tmp_path: Path, clock: HandClock, take_away: Callable[[Path], None]
) -> None:
    later = [Event("d", id=number, data={"text": TEXT}) for number in range(100, 110)]
    async with make_store(tmp_path, clock) as store:
        for number in range(10):
            await accept(store, clock, Event("d", id=number, data={"text": TEXT}))
    async with make_store(tmp_path, clock) as store:
        for number in range(10, 20):
            await accept(store, clock, Event("d", id=number, data={"text": TEXT}))
        take_away(tmp_path / LOG)
        for event in later:
            assert (await accept(store, clock, event)).refusal
        assert isinstance(store.failed.exception(), database.DamagedStoreError)
    async with make_store(tmp_path, clock) as store:
        for event in later:
            assert not (await accept(store, clock, event)).refusal
        documents = [json.loads(b"{" + event.tail + b"}") for event in stored_events(store)]
    ids = [document["id"] for document in documents if document["device"] == "d"]
    gaps = [document["data"] for document in documents if document["type"] == "gateway.gap"]
    assert len(set(ids)) == len(ids)
    assert "found_to_sequence" in gaps[0]
    # SQLite still holds a log that was removed. One that was truncated is lost, which is said; the file is untouched.
    kept = range(20) if take_away in (remove, replace) else range(10)
    assert set(ids) >= {*kept, *range(100, 110)}


async def test_a_log_that_begins_anew_or_is_emptied_by_the_store_itself_is_no_loss(
    tmp_path: Path, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_store(tmp_path, clock) as store:
        for number in range(30):
            assert (await accept(store, clock, Event("d", id=number, data={"text": TEXT * 5}))).accepted == 1
            if number % 3 == 0:
                store._writer.call(lambda: database.write_back(store._committer.connection()))
            if number % 5 == 0:
                store._writer.call(lambda: void(database.empty_log(store._committer.connection())))
                store._writer.call(lambda: store._committer.transact(void))
            assert not store.trial()
        assert not store.failed.done()
    assert not caplog.records


def void(_: object) -> None:
    """Take a result that nobody asks for."""
