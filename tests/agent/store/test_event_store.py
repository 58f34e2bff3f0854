"""The store's guarantees, on a real file: its gaps, its flush socket, and what a disk refuses."""

import asyncio
import errno
import logging
import os
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from agent.config.settings import IdentitySettings
from agent.status import read_status
from agent.store.counts import EventCounts
from agent.store.errors import DamagedStoreError, StoreError
from agent.store.files import swap
from agent.store.files.write_ahead_log import WriteAheadLog
from agent.store.flush_socket import FlushSocket
from agent.store.layout import FILE_NAME, FLUSH_SOCKET_NAME, socket_path
from agent.store.memory import load
from agent.store.port import Outcome, Submission
from agent.store.read import flush_request
from agent.store.read.flush_request import request_counts
from agent.store.schema import database, gaps
from agent.store.schema.gaps import GAPS_MAX, Gap
from agent.store.write.committer import LABEL_RANGES_MAX, declarations
from contract.event import Event
from contract.fingerprint import fingerprint
from tests.agent.store.stores import (
    GATEWAY,
    Faulty,
    HandClock,
    accept,
    batch,
    candidate,
    change,
    crash_image,
    declared,
    document,
    make_store,
    mark_processed,
    rows,
    stored_events,
    submit,
)
from tests.support.flushes import refusing
from tests.support.waiting import wait_until

DEVICE = "urn:dev:mac:00158d0001a2b3c4"
KEY = b"p" * 16
ONE = Event(DEVICE, id=1, data={"t": 21})
TWO = Event(DEVICE, id=2, data={"t": 21})
NAMELESS = Event(DEVICE, data={"t": 21})


async def test_an_opening_that_stores_nothing_writes_nothing(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        await accept(store, ONE)
    before = (tmp_path / FILE_NAME).read_bytes()
    async with make_store(tmp_path):
        pass
    assert (tmp_path / FILE_NAME).read_bytes() == before


@pytest.mark.guarantee(2)
async def test_copies_in_progress_share_one_commit(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        outcomes = await asyncio.gather(*(submit(store, ONE) for _ in range(50)))
        assert sum(outcome.accepted for outcome in outcomes) == 1
        assert sum(outcome.duplicates for outcome in outcomes) == 49
        assert len(stored_events(store)) == 2


async def test_one_sender_that_cannot_be_told_keeps_no_other_waiting(tmp_path: Path, clock: HandClock) -> None:
    def fail(_: Outcome) -> None:
        raise RuntimeError("the connection is gone")

    async with make_store(tmp_path, clock) as store:
        store.submit(Submission((candidate(clock, ONE),), (), None, fail))
        outcome = await accept(store, TWO)
        assert outcome.accepted == 1
        assert len(stored_events(store)) == 3


@pytest.mark.guarantee(2)
async def test_equal_events_without_id_and_time_are_all_kept(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        outcome = await accept(store, NAMELESS, NAMELESS)
        events = stored_events(store)[1:]
    assert outcome.accepted == 2
    assert [event.fingerprint for event in events] == [fingerprint(NAMELESS, label=event.label) for event in events]
    assert b'"possible_duplicate_of":"%s"' % events[0].fingerprint.hex().encode() in events[1].tail
    assert b"possible_duplicate_of" not in events[0].tail


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("seconds", "is_duplicate"), [(200, True), (300, False)])
async def test_a_proven_retransmission_is_a_duplicate_within_the_exchange_lifetime_across_a_kill(
    tmp_path: Path, clock: HandClock, seconds: int, is_duplicate: bool
) -> None:
    async with make_store(tmp_path / "first", clock) as store:
        await accept(store, NAMELESS, key=KEY)
        assert (await accept(store, NAMELESS, key=KEY)).duplicates == 1
        image = crash_image(tmp_path / "first", tmp_path / "second")
    clock.pass_seconds(seconds)
    async with make_store(image, clock) as store:
        assert (await accept(store, NAMELESS, key=KEY)).duplicates == int(is_duplicate)


@pytest.mark.guarantee(2)
@pytest.mark.parametrize(("trusted", "is_duplicate"), [(True, True), (False, False)])
async def test_after_a_reboot_only_a_trusted_clock_proves_a_retransmission(
    tmp_path: Path, clock: HandClock, trusted: bool, is_duplicate: bool
) -> None:
    async with make_store(tmp_path, clock) as store:
        await accept(store, NAMELESS, key=KEY)
    clock.now += 30_000
    clock.running, clock.boot_name = 5_000, "boot-2"
    if not trusted:
        clock.trusted = type(clock.trusted).UNTRUSTED
    async with make_store(tmp_path, clock) as store:
        assert (await accept(store, NAMELESS, key=KEY)).duplicates == int(is_duplicate)


async def test_the_writer_logs_nothing_per_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with make_store(tmp_path) as store:
        await accept(store, ONE)
    assert not caplog.records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder in which the path of a socket is longer than Linux allows."""
    long = tmp_path / ("long" * 30)
    long.mkdir()
    return long


async def test_without_an_agent_nobody_answers(folder: Path) -> None:
    assert request_counts(folder / "missing") is None
    assert request_counts(folder) is None
    descriptor = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as left_by_a_kill:
        left_by_a_kill.bind(socket_path(descriptor))
    os.close(descriptor)
    assert request_counts(folder) is None
    async with FlushSocket(folder, lambda: None):
        assert await asyncio.to_thread(request_counts, folder) is not None
    assert not (folder / FLUSH_SOCKET_NAME).exists()


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_flush_that_fails_or_hangs_is_not_answered_and_the_next_one_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    troubles, over = [StoreError("the disk is full")], threading.Event()

    def flush() -> None:
        if troubles and hangs:
            over.wait(60)
        if troubles:
            raise troubles.pop()

    async with FlushSocket(folder, flush):
        with monkeypatch.context() as patch:
            patch.setattr(flush_request, "ANSWER_SECONDS_MAX", 0.05 if hangs else 60)
            assert await asyncio.to_thread(request_counts, folder) is None
        over.set()
        assert await asyncio.to_thread(request_counts, folder) is not None


async def test_a_folder_that_takes_no_socket_keeps_nobody_from_starting(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / FLUSH_SOCKET_NAME).mkdir()
    async with FlushSocket(folder, lambda: None):
        assert await asyncio.to_thread(request_counts, folder) is None
    assert "flush_socket=failed" in caplog.text


def test_of_declared_gaps_the_latest_are_remembered_and_of_others_all(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        connection.execute("BEGIN")
        gaps.insert(connection, *(Gap(2 * number, 2 * number, "test") for number in range(1, GAPS_MAX + 6)))
        assert len(gaps.undeclared(gaps.load(connection))) == GAPS_MAX + 5
        gaps.declare(connection, 5_000)
        assert len(gaps.load(connection)) == GAPS_MAX + 5, "the commit that declares them may not count"
        gaps.insert(connection, Gap(6_000, 6_000, "test"))
        gaps.declare(connection, 6_001)
        kept = gaps.load(connection)
    assert (kept[0].first, kept[-1].first, len(kept)) == (14, 6_000, GAPS_MAX)


@pytest.mark.guarantee(7)
async def test_more_holes_than_are_remembered_are_salvaged_once_and_all_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "GAPS_MAX", 10)
    async with make_store(tmp_path) as store:
        for number in range(60):
            await accept(store, Event("d", id=number))
    change(tmp_path, "DELETE FROM events WHERE first_position % 2 = 0 AND first_position < 56")
    swap.suspect(tmp_path / FILE_NAME, "set by the test")
    for life in range(3):
        async with make_store(tmp_path) as store:
            await accept(store, Event("d", id=f"later {life}"))
            events = stored_events(store)
            assert not store.failed.done()
            assert not swap.suspicion(tmp_path / FILE_NAME)
            assert sum(b'"device":"d"' in event.tail for event in events) == 60 - 26 + 1 + life
            assert [gap["count"] for gap in declared(events)] == [26]


@pytest.mark.guarantee(3)
def test_a_declaration_that_is_given_up_is_made_again(tmp_path: Path) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        gaps.insert(connection, Gap(1, 10, "test"))
        gaps.declare(connection, 15)
        gaps.insert(connection, Gap(30, 40, "test"))
        assert gaps.undeclared(gaps.load(connection)) == [Gap(30, 40, "test")]
        gaps.insert(connection, Gap(11, 20, "test"))
        assert gaps.undeclared(gaps.load(connection)) == [Gap(30, 40, "test"), Gap(1, 20, "test")]


def test_many_gaps_of_one_reason_take_few_events(tmp_path: Path, clock: HandClock) -> None:
    with closing(database.open_for_service(tmp_path / "events.db")) as connection:
        memory = load(connection, clock, IdentitySettings())
    memory.epochs.add(1, "epoch")
    memory.undeclared.extend(Gap(2 * number, 2 * number, "test") for number in range(1, LABEL_RANGES_MAX + 2))
    memory.undeclared.append(Gap(900, 899, "test"))
    events = [document(candidate)["data"] for candidate in declarations(GATEWAY, memory, clock)]
    assert [data["count"] for data in events] == [LABEL_RANGES_MAX, 1]
    assert events[1]["labels"] == [["epoch", 2 * LABEL_RANGES_MAX + 2, 2 * LABEL_RANGES_MAX + 2]]
    assert (events[0]["found_to_epoch"], events[0]["found_to_sequence"]) == ("epoch", 899)


async def test_a_damaged_fact_is_raised_and_never_taken_for_none(tmp_path: Path) -> None:
    async with make_store(tmp_path) as store:
        store.outbox.set_fact("receipts.table", "table-1")
        await accept(store, ONE)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"table-1", b"table-2"))
    async with make_store(tmp_path) as store:
        with pytest.raises(DamagedStoreError, match="facts"):
            store.outbox.fact("receipts.table")
        assert swap.suspicion(path)
    async with make_store(tmp_path) as store:
        assert store.outbox.fact("receipts.table") is None
        await accept(store, TWO)
        assert [b"gateway.gap" in event.tail for event in stored_events(store)].count(True) == 1


@pytest.mark.guarantee(1)
async def test_a_commit_counts_though_the_length_of_the_log_cannot_be_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with make_store(tmp_path) as store:
        monkeypatch.setattr(WriteAheadLog, "is_long", refusing(errno.EIO))
        assert (await accept(store, ONE)).accepted == 1
        assert (await accept(store, ONE)).duplicates == 1
        assert not store.failed.done()


async def test_retransmissions_in_progress_share_a_failed_commit(tmp_path: Path, faulty: Faulty) -> None:
    async with make_store(tmp_path, connect=faulty.connect, commit_delay_ms_max=200) as store:
        faulty.fault = "INSERT INTO events"
        outcomes = await asyncio.gather(*(submit(store, NAMELESS, key=KEY) for _ in range(2)))
        assert all(outcome.refusal for outcome in outcomes)


@pytest.mark.parametrize("fault", ["INSERT OR REPLACE INTO batches", "DELETE FROM processed", "UPDATE fingerprints"])
async def test_what_fails_between_commits_is_tried_again_after_a_while_and_not_at_each_delivery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, faulty: Faulty, clock: HandClock, fault: str
) -> None:
    async with make_store(tmp_path, clock, connect=faulty.connect) as store:
        await accept(store, ONE)
        mark_processed(store, 1, 1)
        store.outbox.mark_forwarded(batch(2, 2))
        assert (await accept(store, ONE)).duplicates == 1
        wait_until(lambda: store._maintenance._marks_since is not None, "the marks are noticed")
        clock.pass_seconds(3)
        faulty.fault = fault
        for _ in range(10):
            assert (await accept(store, ONE)).duplicates == 1
        assert faulty.hits == 1
        assert sum("maintenance-failed" in record.getMessage() for record in caplog.records) == 1
        faulty.fault = ""
        clock.pass_seconds(6)

        def forwarded() -> bool:
            store.trouble()  # a turn of the writer
            return bool(rows(tmp_path, "SELECT last FROM batches"))

        wait_until(forwarded, "the marks are on disk")
        assert store.counts() == EventCounts(0, 1, 1, 0)
        assert read_status(tmp_path, GATEWAY).duplicates == 11
