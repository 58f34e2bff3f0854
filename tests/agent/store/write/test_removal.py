"""Removal: in pieces that never fill the log; without a receipt, of events released, given up, or expired."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import randbytes
from shutil import copytree
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from agent.cli.doctor.machine import STORE_BYTES_MIN
from agent.status import read_status
from agent.store.counts import EventCounts
from agent.store.event_store import EventStore
from agent.store.fingerprints import segments
from agent.store.layout import FILE_NAME
from agent.store.port import OutboxError, Reject
from agent.store.schema import database, disk_space, tables
from agent.store.write.decision import STORE_FULL
from agent.store.write.removal import PIECE_BYTES
from contract.event import Event
from tests.agent.store.faults.failing_disk import Error, FailingDisk, Fault, Operation
from tests.agent.store.faults.test_full_disk import take_all_but
from tests.agent.store.stores import (
    GATEWAY,
    START,
    Faulty,
    HandClock,
    accept,
    crash_image,
    declared,
    holding_the_log,
    make_store,
    mark_processed,
    rows,
    stored_events,
    submit,
    take_turns,
    watched,
    write_commits,
)
from tests.agent.store.test_event_store import ONE, TWO
from tests.support.disks.small_disk import small_disk

LOG_BYTES_MAX = PIECE_BYTES * 3 // 2
"""Of a purge alone: a piece, and what it changes besides."""
SIZES = st.one_of(st.just(1), st.integers(1, 100))
TURNS_MAX = 200
KNOWN = Event("d", id="known")


def noting_log_bytes(folder: Path, noted: list[int]) -> database.Connect:
    """Note how large the log is after each transaction."""

    def note(sql: str) -> None:
        if sql == "COMMIT":
            noted.append(disk_space.log_bytes(folder / FILE_NAME))

    return watched(after=note)


def wait_for(store: EventStore, is_done: Callable[[], bool]) -> None:
    take_turns(store, TURNS_MAX, is_done)
    assert is_done()


@pytest.mark.guarantee(3)
@pytest.mark.heavy
@settings(max_examples=5, phases=[Phase.explicit, Phase.generate])
@example(sizes=[1], when_full="refuse")
@given(sizes=st.lists(SIZES, min_size=1, max_size=5), when_full=st.sampled_from(["refuse", "drop-oldest"]))
async def test_a_full_store_whose_events_are_in_the_table_empties_by_itself_with_a_short_log(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], when_full: str
) -> None:
    folder, bytes_max = tmp_path_factory.mktemp("removal"), 6 << 20
    clock, log_bytes, bounds = HandClock(), [0], {"max_bytes": bytes_max, "keep_processed_seconds": 100}
    last = write_commits(folder, sizes, bytes_max * 9 // 10)
    connect = noting_log_bytes(folder, log_bytes)
    async with make_store(folder, clock, connect=connect, when_full=when_full, **bounds) as store:
        if when_full == "refuse":
            assert (await accept(store, Event("d", id="a"))).refusal == STORE_FULL
        else:
            assert (await accept(store, Event("d", id="a"))).accepted == 1
            assert 0 < store.counts().lost < last // 10
        mark_processed(store, 1, last)
        assert (await accept(store, Event("d", id="b"))).accepted == 1
        clock.pass_seconds(101)
        wait_for(store, lambda: store.counts().processed == 0)
        assert max(log_bytes) <= LOG_BYTES_MAX
        assert store.outbox.read(0, 9, 1 << 20)


@pytest.mark.guarantee(3)
async def test_what_failed_for_lack_of_space_is_not_tried_by_each_request_and_is_no_space(tmp_path: Path) -> None:
    clock, system = HandClock(), FailingDisk()
    last = write_commits(tmp_path, [1], 900_000)
    async with make_store(tmp_path, clock, connect=system.connect, max_bytes=1_000_000) as store:
        mark_processed(store, 1, last)
        with system.failing(Fault(Operation.WRITE, Error.FULL, ("", "-wal"))) as fault:
            refusals = [(await accept(store, Event("d", id="a"))).refusal]
            before = fault.hits
            refusals += [(await accept(store, Event("d", id=number))).refusal for number in range(20)]
            assert all(refusals)
            assert fault.hits == before > 0
            assert store.trouble()
        clock.pass_seconds(11)
        wait_for(store, lambda: not store.trouble())
        assert (await accept(store, Event("d", id="a"))).accepted == 1


@pytest.mark.guarantee(3)
@pytest.mark.heavy
async def test_a_disk_full_of_single_events_is_emptied_while_it_serves_and_with_what_others_leave(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 29) as disk:
        clock, folder = HandClock(), disk / "state"
        last = write_commits(tmp_path / "made", [1], 20 << 20)
        copytree(tmp_path / "made", folder)
        async with make_store(folder, clock) as store:
            assert (await accept(store, KNOWN)).accepted == 1
            take_all_but(disk / "filler", disk_space.RESERVE_BYTES - (64 << 10))
            assert (await accept(store, Event("d", id="a"))).refusal == disk_space.DISK_FULL
            for _ in range(10):  # what is rejected beside a known event is kept, up to a bound
                rejects = tuple(Reject("d", "http", START, "bad", randbytes(4_096)) for _ in range(200))
                assert (await submit(store, KNOWN, rejects=rejects)).duplicates == 1
            assert disk_space.free_bytes(folder / FILE_NAME) > 2 * PIECE_BYTES
            take_all_but(disk / "filler", 300 << 10)  # less than a piece
            mark_processed(store, 1, last)
            for _ in range(TURNS_MAX):
                clock.pass_seconds(6)
                if (await accept(store, Event("d", id="a"))).accepted:
                    break
            assert (await accept(store, Event("d", id="a"))).duplicates == 1
            assert not store.trouble()


@pytest.mark.guarantee(3)
async def test_a_reader_of_the_log_delays_a_purge_that_would_only_lengthen_it(tmp_path: Path) -> None:
    clock, log_bytes = HandClock(), [0]
    last, connect = write_commits(tmp_path, [1], 4 << 20), noting_log_bytes(tmp_path, log_bytes)
    async with make_store(tmp_path, clock, connect=connect, keep_processed_seconds=0) as store:
        with pytest.MonkeyPatch.context() as patch, holding_the_log(tmp_path):
            patch.setattr(disk_space, "LOG_BYTES_EXPECTED", 1 << 20)
            mark_processed(store, 1, last)
            for _ in range(20):
                clock.pass_seconds(11)
                store.trouble()
            assert max(log_bytes) < 2 << 20
        clock.pass_seconds(11)
        wait_for(store, lambda: store.counts().processed == 0)


@pytest.mark.guarantee(3)
@pytest.mark.parametrize("when_full", ["refuse", "drop-oldest"])
async def test_no_event_waits_until_a_store_whose_bound_was_lowered_is_below_it(tmp_path: Path, when_full: str) -> None:
    class SlowDisk(HandClock):
        def monotonic_ms(self) -> int:
            self.pass_seconds(1)
            return self.running

    last = write_commits(tmp_path, [1], 6 << 20)
    async with make_store(tmp_path, SlowDisk(), max_bytes=2 << 20, when_full=when_full) as store:
        if when_full == "refuse":
            mark_processed(store, 1, last)
        assert (await accept(store, Event("d", id="a"))).refusal == STORE_FULL
        wait_for(store, lambda: not store._writer.call(store._transactions.capacity.is_full))
        assert (await accept(store, Event("d", id="a"))).accepted == 1


@pytest.mark.guarantee(2)
@pytest.mark.guarantee(3)
@pytest.mark.heavy
@pytest.mark.parametrize("when_full", ["refuse", "drop-oldest"])
async def test_fingerprints_beyond_their_share_are_forgotten_and_never_cost_an_event(
    tmp_path: Path, when_full: str, caplog: pytest.LogCaptureFixture, clock: HandClock
) -> None:
    store_settings: dict[str, Any] = {"when_full": when_full, "keep_processed_seconds": 0, "segment_events": 1_024}
    async with make_store(tmp_path, clock, max_bytes=STORE_BYTES_MIN, **store_settings) as store:
        for number in range(150):
            outcome = await accept(store, *(Event("d", id=200 * number + place) for place in range(200)))
            assert outcome.accepted == 200, outcome.refusal
            mark_processed(store, 1, store._memory.end)
            clock.pass_seconds(1)
        assert not store.trouble()
        assert read_status(tmp_path, GATEWAY).forgotten_early == store._memory.forgotten_early > 1_000
        assert (await accept(store, Event("d", id=29_000))).duplicates == 1
        assert (await accept(store, Event("d", id=0))).accepted == 1
    assert "store=fingerprints forgotten=1024" in caplog.text
    async with make_store(tmp_path, clock, max_bytes=STORE_BYTES_MIN * 3 // 4, **store_settings) as store:
        assert (await accept(store, Event("d", id="in less space"))).accepted == 1
        assert store.counts().lost == 0, "dropped"


async def test_a_segment_is_forgotten_in_pieces_and_a_kill_leaves_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: HandClock
) -> None:
    monkeypatch.setattr(segments, "ROWS_PER_PIECE", 1)
    async with make_store(tmp_path / "live", clock, segment_events=600, retention_seconds=100) as store:
        await accept(store, *(Event("d", id=number) for number in range(900)))
        wait_for(store, lambda: store._memory.fingerprints.sealed_events > 0)
        before = count_rows(tmp_path / "live")
        assert before > 2
        clock.pass_seconds(1_000)
        wait_for(store, lambda: count_rows(tmp_path / "live") < before)
        image = crash_image(tmp_path / "live", tmp_path / "image")
    async with make_store(image, clock, segment_events=600, retention_seconds=100) as store:
        wait_for(store, lambda: count_rows(image) == 0)
        assert (await accept(store, Event("d", id=7))).accepted == 1


def count_rows(folder: Path) -> int:
    ((found,),) = rows(folder, "SELECT count(*) FROM sealed")
    return int(found)


NOTE = ("flight", "here")


def kept_commits(folder: Path) -> list[int]:
    return [first for (first,) in rows(folder, "SELECT first_position FROM events ORDER BY first_position")]


def given_up(store: EventStore) -> list[tuple[str, int, int]]:
    """Return reason and sequences of each range that a gap declares."""
    gaps = declared(stored_events(store))
    return [(gap["reason"], first, last) for gap in gaps for _, first, last in gap["labels"]]


@pytest.mark.guarantee(4)
async def test_what_is_released_stays_so_after_a_kill_and_is_purged_at_once(tmp_path: Path) -> None:
    async with make_store(tmp_path / "store") as store:
        await accept(store, ONE)
        await accept(store, TWO)
        store.outbox.release(1, 2, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image) as store:
        assert [event.position for event in stored_events(store)] == [3]
        assert store.outbox.fact("flight") == "here"
        assert (await accept(store, ONE)).duplicates == 1
        assert kept_commits(image)[0] == 3


async def test_marks_that_wait_do_not_undo_a_release(tmp_path: Path) -> None:
    async with make_store(tmp_path / "store") as store:
        await accept(store, *(Event("d", id=number, data={}) for number in range(8)))
        mark_processed(store, 1, 2)
        store.outbox.release(5, 6, NOTE)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    with closing(database.open_for_reading(image / FILE_NAME)) as connection:
        assert tables.load_processed(connection) == [(1, 2), (5, 6)]


async def test_a_release_that_fails_changes_nothing(tmp_path: Path, faulty: Faulty) -> None:
    async with make_store(tmp_path, connect=faulty.connect) as store:
        await accept(store, ONE)
        faulty.fault = "INSERT OR REPLACE INTO facts"
        with pytest.raises(OutboxError, match="disk is full"):
            store.outbox.release(1, 2, NOTE)
        faulty.fault = ""
        assert [event.position for event in stored_events(store)] == [1, 2]


@pytest.mark.guarantee(4)
async def test_what_is_released_counts_as_released_though_its_purge_fails_and_a_later_turn_purges_it(
    tmp_path: Path, clock: HandClock, faulty: Faulty
) -> None:
    async with make_store(tmp_path, clock, connect=faulty.connect) as store:
        await accept(store, ONE)
        faulty.fault = "DELETE FROM events"
        assert store.outbox.release(1, 2, NOTE)
        assert faulty.hits
        faulty.fault = ""
        assert store.outbox.fact("flight") == "here"
        await accept(store, TWO)
        clock.pass_seconds(6)
        store.trouble()
        store.trouble()  # a turn of the writer later
        assert kept_commits(tmp_path) == [3]
        assert store.outbox.release(3, 3, NOTE)
        assert kept_commits(tmp_path) == []


async def test_what_is_refused_after_its_release_is_declared_once_and_its_resend_is_new(tmp_path: Path) -> None:
    told: list[bool] = []
    async with make_store(tmp_path / "store") as store:
        store.add_transport(int, lambda: told.append(True))
        await accept(store, ONE, TWO)
        store.outbox.release(1, 3, NOTE)
        for _ in range(2):
            store.outbox.give_up(2, "too large for Kafka")
        await asyncio.sleep(0)
        assert told == [True], "the transports forget what they answer themselves"
        assert store.counts() == EventCounts(1, 0, 0, 1)
        image = crash_image(tmp_path / "store", tmp_path / "image")
    async with make_store(image) as store:
        assert given_up(store) == [("too large for Kafka", 2, 2)]
        outcome = await accept(store, ONE, TWO)
        assert (outcome.accepted, outcome.duplicates) == (1, 1)


LIFETIME = 3_600.0
FIRST = Event("urn:a", id=1, data={"x": 1})


async def fill(store: EventStore, clock: HandClock, first: int, count: int, seconds: float) -> None:
    """Store events, each so long after the one before."""
    for number in range(first, first + count):
        await accept(store, replace(FIRST, id=number))
        clock.pass_seconds(seconds)


async def test_the_first_events_that_are_too_old_become_one_gap_and_their_resend_is_new(
    tmp_path: Path, clock: HandClock
) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 10, 600)  # positions 2 to 11
        epoch = store.outbox.epoch()
        assert store.outbox.expire(2, 11, LIFETIME) == 4
        assert declared(stored_events(store)) == [{"reason": "expired", "count": 4, "labels": [[epoch, 2, 5]]}]
        assert store.counts() == EventCounts(8, 0, 0, 4)
        assert [event.position for event in stored_events(store)] == [1, 6, 7, 8, 9, 10, 11, 12]
        assert store.outbox.expire(6, 11, LIFETIME) == 0
        again = await accept(store, replace(FIRST, id=2), replace(FIRST, id=9))
        assert (again.accepted, again.duplicates) == (1, 1)


@pytest.mark.guarantee(4)
async def test_an_age_is_running_time_whatever_the_wall_clock_says(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 2, 1_000)
        clock.now += 10 * 86_400_000  # set forward
        assert store.outbox.expire(2, 3, LIFETIME) == 0
    clock.pass_seconds(86_400)  # while no agent runs
    async with make_store(tmp_path, clock) as store:
        assert store.outbox.expire(2, 3, LIFETIME) == 0
        clock.pass_seconds(LIFETIME + 1)
        assert store.outbox.expire(2, 3, LIFETIME) == 2


async def test_sealed_events_expire_with_the_last_of_their_segment(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, segment_events=8) as store:
        await fill(store, clock, 1, 40, 600)
        while not list(store._memory.fingerprints.segments()):
            clock.pass_seconds(0.1)
            await store.barrier()
        expired = store.outbox.expire(2, 41, LIFETIME)
        assert 35 - 8 <= expired <= 35  # those of the segment of the first young one wait for it
        assert sum(gap["count"] for gap in declared(stored_events(store))) == expired


async def test_what_is_past_the_retention_has_expired(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock, retention_seconds=LIFETIME) as store:
        await fill(store, clock, 1, 3, 1)
        clock.pass_seconds(2 * LIFETIME)
        await fill(store, clock, 4, 1, 1)
        await store.barrier()
        assert store.outbox.expire(2, 5, LIFETIME) == 3


@pytest.mark.guarantee(4)
async def test_what_was_dropped_or_given_up_meanwhile_does_not_expire_as_well(tmp_path: Path, clock: HandClock) -> None:
    async with make_store(tmp_path, clock) as store:
        await fill(store, clock, 1, 10, 600)  # positions 2 to 11
        epoch = store.outbox.epoch()
        store.outbox.give_up(3, "dropped")  # as on a full store, between the reading and the expiry
        assert store.outbox.expire(2, 11, LIFETIME) == 3
        assert declared(stored_events(store)) == [
            {"reason": "dropped", "count": 1, "labels": [[epoch, 3, 3]]},
            {"reason": "expired", "count": 3, "labels": [[epoch, 2, 2], [epoch, 4, 5]]},
        ]
        assert store.counts().lost == 4


@pytest.mark.guarantee(4)
async def test_a_kill_before_the_declaration_leaves_it_to_the_next_start(
    tmp_path: Path, clock: HandClock, faulty: Faulty
) -> None:
    async with make_store(tmp_path / "live", clock, connect=faulty.connect) as store:
        await fill(store, clock, 1, 10, 600)
        epoch = store.outbox.epoch()
        faulty.fault = "INSERT INTO events"  # the gap is on disk, its declaration is not
        assert store.outbox.expire(2, 11, LIFETIME) == 4
        assert declared(stored_events(store)) == []
        image = crash_image(tmp_path / "live", tmp_path / "image")
    for _ in range(2):
        async with make_store(image, clock) as store:
            await store.barrier()
            assert declared(stored_events(store)) == [{"reason": "expired", "count": 4, "labels": [[epoch, 2, 5]]}]
            assert store.outbox.expire(2, 11, LIFETIME) == 0
