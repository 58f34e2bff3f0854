"""The event store on a disk that refuses writes: events are acked only if they are on disk, and the store recovers."""

import asyncio
import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from agent.store.files.write_ahead_log import WriteAheadLog
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError
from agent.store.schema import database
from tests.agent.store.stores import (
    FaultyConnection,
    HandClock,
    accept,
    batch,
    make_store,
    open_faulty,
    submit,
)
from tests.agent.store.test_event_store import KEY, NAMELESS, ONE
from tests.support.waiting import wait_until


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


async def test_retransmissions_in_progress_share_a_failed_commit(
    tmp_path: Path, clock: HandClock, faulty: type[FaultyConnection]
) -> None:
    async with make_store(tmp_path, clock, connect=open_faulty(faulty), commit_delay_ms_max=200) as store:
        faulty.fault = "INSERT INTO events"
        outcomes = await asyncio.gather(*(submit(store, clock, NAMELESS, key=KEY) for _ in range(2)))
        assert all(outcome.refusal for outcome in outcomes)


async def test_what_fails_between_commits_is_tried_again_after_a_while_and_not_at_each_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, faulty: type[FaultyConnection], clock: HandClock
) -> None:
    async with make_store(tmp_path, clock, connect=open_faulty(faulty)) as store:
        await accept(store, clock, ONE)
        store.outbox.mark_forwarded(batch(1, 2))
        wait_until(lambda: store._maintenance._marks_since is not None, "the marks are noticed")
        clock.pass_seconds(3)
        faulty.fault = "INSERT OR REPLACE INTO batches"
        for _ in range(10):
            assert (await accept(store, clock, ONE)).duplicates == 1
        assert faulty.hits == 1
        assert sum("maintenance-failed" in record.getMessage() for record in caplog.records) == 1
        faulty.fault = ""
        clock.pass_seconds(6)

        def forwarded() -> bool:
            store.trouble()  # a turn of the writer
            with closing(database.open_for_reading(tmp_path / FILE_NAME)) as connection:
                return bool(connection.execute("SELECT last FROM batches").fetchone())

        wait_until(forwarded, "the marks are on disk")


@pytest.mark.guarantee(3)
async def test_a_fact_that_the_disk_refuses_is_an_error_that_says_so_and_can_be_tried_again(
    tmp_path: Path, faulty: type[FaultyConnection]
) -> None:
    async with make_store(tmp_path, HandClock(), connect=open_faulty(faulty)) as store:
        for fault in ("INSERT OR REPLACE INTO facts", "COMMIT"):
            faulty.fault = fault
            with pytest.raises(OutboxError, match="disk is full"):
                store.outbox.set_fact("a", "b")
            faulty.fault = ""
            store.outbox.set_fact("a", fault)
            assert store.outbox.fact("a") == fault
