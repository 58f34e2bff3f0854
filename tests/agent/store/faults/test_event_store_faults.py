"""The event store on a disk that refuses writes: events are acked only if they are on disk, and the store recovers."""

import asyncio
import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.files.write_ahead_log import WriteAheadLog
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database
from agent.store.write.decision import STORE_FULL
from contract.event import Event
from tests.agent.store.stores import (
    FaultyConnection,
    HandClock,
    accept,
    batch,
    make_store,
    nearly_full,
    open_faulty,
    stored_events,
    submit,
)
from tests.support.waiting import wait_until

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
KEY = b"p" * 16
ONE = Event(DEVICE, id=1, data={"t": 21})
TWO = Event(DEVICE, id=2, data={"t": 21})
NAMELESS = Event(DEVICE, data={"t": 21})


@pytest.mark.guarantee(1)
@pytest.mark.parametrize("fault", ["BEGIN", "INSERT INTO events", "INSERT INTO fingerprints", "COMMIT", "SELECT (page"])
async def test_nothing_is_acked_that_is_not_on_disk_and_the_store_recovers(
    tmp_path: Path, clock: HandClock, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_full(monkeypatch)

    def connect(path: Path) -> FaultyConnection:
        connection = database.open_for_service(path, FaultyConnection)
        assert isinstance(connection, FaultyConnection)
        return connection

    async with make_store(tmp_path, clock, connect=connect) as store:
        await accept(store, clock, ONE)
        FaultyConnection.fault = fault
        try:
            refused = await asyncio.gather(submit(store, clock, TWO), submit(store, clock, TWO))
        finally:
            FaultyConnection.fault = ""
        assert all(outcome.refusal and outcome.retry_seconds for outcome in refused)
        assert (await accept(store, clock, TWO)).accepted == 1
        assert (await accept(store, clock, ONE)).duplicates == 1
        labels = [event.label for event in stored_events(store)]
    assert len(set(labels)) == len(labels)
    assert {label.epoch for label in labels} == {labels[0].epoch, labels[-1].epoch}
    has_assigned_labels = not fault.startswith("SELECT")
    assert (labels[0].epoch != labels[-1].epoch) == has_assigned_labels, "a salvaged image may hold them"


@pytest.mark.guarantee(1)
async def test_a_commit_whose_outcome_is_unknown_is_forgotten_and_its_resend_is_new(
    tmp_path: Path, clock: HandClock
) -> None:
    class CommitsThenFails(FaultyConnection):
        def execute(self, sql: str, *parameters: object):  # type: ignore[no-untyped-def]
            cursor = super().execute(sql, *parameters)
            if sql == "COMMIT" and type(self).fault == "after":
                raise sqlite3.OperationalError("disk I/O error")
            return cursor

    async with make_store(
        tmp_path, clock, connect=lambda path: database.open_for_service(path, CommitsThenFails)
    ) as store:
        await accept(store, clock, ONE)
        CommitsThenFails.fault = "after"
        refused = await accept(store, clock, NAMELESS, key=KEY)
        CommitsThenFails.fault = ""
        assert refused.refusal
        assert (await accept(store, clock, NAMELESS, key=KEY)).accepted == 1
        events = stored_events(store)
    assert [event.label.sequence for event in events] == [1, 2, 1, 2]
    assert len({event.label.epoch for event in events}) == 2


@pytest.mark.guarantee(1)
async def test_a_commit_counts_though_the_length_of_the_log_cannot_be_read_after_it(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: WriteAheadLog) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with make_store(tmp_path, clock) as store:
        monkeypatch.setattr(WriteAheadLog, "is_long", fail)
        assert (await accept(store, clock, ONE)).accepted == 1
        assert (await accept(store, clock, ONE)).duplicates == 1
        assert not store.failed.done()


@pytest.mark.guarantee(3)
async def test_a_full_store_refuses_new_events_acks_copies_and_recovers_by_itself(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock, max_bytes=400_000, keep_processed_seconds=0) as store:
        number, refusal = 0, ""
        while not refusal:
            number += 1
            refusal = (await accept(store, clock, Event(DEVICE, id=number, data={"text": "x" * 4000}))).refusal
        assert refusal == STORE_FULL
        assert (await accept(store, clock, Event(DEVICE, id=1, data={"text": "x" * 4000}))).duplicates == 1
        last = stored_events(store)[-1].position
        store.outbox.mark_forwarded(batch(1, last))
        store.outbox.mark_processed(store.outbox.forwarded())
        for _ in range(20):
            clock.pass_seconds(11)
            if not (await accept(store, clock, Event(DEVICE, id=number, data={"text": "x" * 4000}))).refusal:
                break
        else:
            pytest.fail("the store stays full although all is processed")


async def test_retransmissions_in_progress_share_a_failed_commit(tmp_path: Path, clock: HandClock) -> None:
    def connect(path: Path) -> FaultyConnection:
        connection = database.open_for_service(path, FaultyConnection)
        assert isinstance(connection, FaultyConnection)
        return connection

    async with make_store(tmp_path, clock, connect=connect, commit_delay_ms_max=200) as store:
        FaultyConnection.fault = "INSERT INTO events"
        try:
            outcomes = await asyncio.gather(*(submit(store, clock, NAMELESS, key=KEY) for _ in range(2)))
        finally:
            FaultyConnection.fault = ""
        assert all(outcome.refusal for outcome in outcomes)


async def test_what_fails_between_commits_is_tried_again_after_a_while_and_not_at_each_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(FaultyConnection):
        hits = 0

    clock = HandClock()
    async with make_store(tmp_path, clock, connect=open_faulty(Failing)) as store:
        await accept(store, clock, ONE)
        store.outbox.mark_forwarded(batch(1, 2))
        wait_until(lambda: store._maintenance._marks_since is not None, "the marks are noticed")
        clock.pass_seconds(3)
        Failing.fault = "INSERT OR REPLACE INTO batches"
        for _ in range(10):
            assert (await accept(store, clock, ONE)).duplicates == 1
        assert Failing.hits == 1
        assert sum("maintenance-failed" in record.getMessage() for record in caplog.records) == 1
        Failing.fault = ""
        clock.pass_seconds(6)

        def forwarded() -> bool:
            store.trouble()  # a turn of the writer
            with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
                return bool(connection.execute("SELECT last FROM batches").fetchone())

        wait_until(forwarded, "the marks are on disk")


@pytest.mark.guarantee(3)
async def test_a_fact_that_the_disk_refuses_is_an_error_that_says_so_and_can_be_tried_again(tmp_path: Path) -> None:
    class Full(FaultyConnection):
        pass

    async with make_store(tmp_path, HandClock(), connect=open_faulty(Full)) as store:
        for fault in ("INSERT OR REPLACE INTO facts", "COMMIT"):
            Full.fault = fault
            with pytest.raises(OutboxError, match="disk is full"):
                store.outbox.set_fact("a", "b")
            Full.fault = ""
            store.outbox.set_fact("a", fault)
            assert store.outbox.fact("a") == fault
